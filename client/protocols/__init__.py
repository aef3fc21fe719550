"""The parties' half of every protocol by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from client.context import ClientContext
from client.local import Local
from client.protocols import split, vimadmm, vimadmm_j
from common.conversation import Link

Participate = Callable[[ClientContext, Link], Awaitable[None]]

PARTICIPATE: Mapping[str, Participate] = {
    "split": split.participate,
    "vimadmm": vimadmm.participate,
    "vimadmm_j": vimadmm_j.participate,
}

# A party's part of the joint model, from its state.
LOCAL: Mapping[str, Callable[[ClientContext], Local]] = {
    "split": split.local,
    "vimadmm": vimadmm.local,
    "vimadmm_j": vimadmm_j.local,
}
