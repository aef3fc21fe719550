"""The parties' half of every protocol by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from colonnade.client.models.local import Local, bottom, headed
from colonnade.client.protocols import (
    agg_vfl,
    c_vfl,
    centralized,
    czofo,
    fdml,
    fedbcd,
    fedvs,
    linear_admm,
    local,
    split,
    split_avg,
    syn_zoo_vfl,
    vafl,
    vfedmh,
    vfl_afe,
    vimadmm,
    vimadmm_j,
    zoo_vfl,
)
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link

Participate = Callable[[ClientContext, Link], Awaitable[None]]

PARTICIPATE: Mapping[str, Participate] = {
    "split": split.participate,
    "split_avg": split_avg.participate,
    "fedvs": fedvs.participate,
    "fedbcd": fedbcd.participate,
    "fdml": fdml.participate,
    "c_vfl": c_vfl.participate,
    "vafl": vafl.participate,
    "czofo": czofo.participate,
    "zoo_vfl": zoo_vfl.participate,
    "syn_zoo_vfl": syn_zoo_vfl.participate,
    "vfl_afe": vfl_afe.participate,
    "vimadmm": vimadmm.participate,
    "vimadmm_j": vimadmm_j.participate,
    "vfedmh": vfedmh.participate,
    "centralized": centralized.participate,
    "linear_admm": linear_admm.participate,
    "agg_vfl": agg_vfl.participate,
    "local": local.participate,
}

# A party's part of the joint model, from its state.
LOCAL: Mapping[str, Callable[[ClientContext], Local]] = {
    "split": bottom,
    "split_avg": bottom,
    "fedvs": fedvs.local,
    "fedbcd": bottom,
    "fdml": lambda ctx: headed(ctx)[0],
    "c_vfl": bottom,
    "vafl": bottom,
    "czofo": bottom,
    "zoo_vfl": bottom,
    "syn_zoo_vfl": bottom,
    "vfl_afe": bottom,
    "vimadmm": bottom,
    "vimadmm_j": lambda ctx: headed(ctx)[0],
    "linear_admm": linear_admm.local,
    "vfedmh": bottom,
    "agg_vfl": agg_vfl.local,
}
