"""The server's half of every protocol by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from common.conversation import Cohort
from server.context import ServerContext
from server.protocols import (
    centralized,
    linear_admm,
    split,
    vimadmm,
    vimadmm_j,
)

Serve = Callable[[ServerContext, Cohort], Awaitable[None]]

SERVE: Mapping[str, Serve] = {
    "split": split.serve,
    "vimadmm": vimadmm.serve,
    "vimadmm_j": vimadmm_j.serve,
    "centralized": centralized.serve,
    "linear_admm": linear_admm.serve,
}
