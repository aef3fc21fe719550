"""The server's half of every protocol by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.server.fusion.active_joint import active_joint
from colonnade.server.fusion.joint import Joint
from colonnade.server.protocols import (
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
from colonnade.server.training.context import ServerContext

Serve = Callable[[ServerContext, Cohort], Awaitable[None]]

SERVE: Mapping[str, Serve] = {
    "split": split.serve,
    "split_avg": split_avg.serve,
    "fedvs": fedvs.serve,
    "fedbcd": fedbcd.serve,
    "fdml": fdml.serve,
    "c_vfl": c_vfl.serve,
    "vafl": vafl.serve,
    "czofo": czofo.serve,
    "zoo_vfl": zoo_vfl.serve,
    "syn_zoo_vfl": syn_zoo_vfl.serve,
    "vfl_afe": vfl_afe.serve,
    "vimadmm": vimadmm.serve,
    "vimadmm_j": vimadmm_j.serve,
    "vfedmh": vfedmh.serve,
    "centralized": centralized.serve,
    "linear_admm": linear_admm.serve,
    "agg_vfl": agg_vfl.serve,
    "local": local.serve,
}

# The server's part of the joint model, from its state; what is not here cannot be explained.
JOINT: Mapping[str, Callable[[ServerContext], Joint]] = {
    "split": split.joint,
    "split_avg": split_avg.joint,
    "fedvs": fedvs.joint,
    "fedbcd": fedbcd.joint,
    "fdml": fdml.joint,
    "c_vfl": c_vfl.joint,
    "vafl": vafl.joint,
    "czofo": czofo.joint,
    "zoo_vfl": zoo_vfl.joint,
    "syn_zoo_vfl": syn_zoo_vfl.joint,
    "vfl_afe": vfl_afe.joint,
    "vimadmm": vimadmm.joint,
    "vimadmm_j": vimadmm_j.joint,
    "linear_admm": linear_admm.joint,
}

# The same where it depends on the rows, since the server has columns of its own.
ACTIVE: Mapping[str, Callable[[ServerContext], Callable[[Tensor], Joint]]] = {
    "vfedmh": partial(active_joint, averaged="embeddings"),
    "agg_vfl": partial(active_joint, averaged="logits"),
}
