"""The parties' half of every protocol by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from client.context import ClientContext
from client.protocols import (
    centralized,
    linear_admm,
    split,
    vimadmm,
    vimadmm_j,
)
from common.conversation import Link

Participate = Callable[[ClientContext, Link], Awaitable[None]]

PARTICIPATE: Mapping[str, Participate] = {
    "split": split.participate,
    "vimadmm": vimadmm.participate,
    "vimadmm_j": vimadmm_j.participate,
    "centralized": centralized.participate,
    "linear_admm": linear_admm.participate,
}
