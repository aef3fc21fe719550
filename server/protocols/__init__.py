"""The server side of every protocol by name, one module each: common/contracts/registry.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from torch import Tensor

from colonnade.common.contracts.registry import ByName
from colonnade.common.conversation.conversation import Cohort
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import Decided, Joint

# The last argument is `federation.protocol`.
Serve = Callable[[ServerContext, Cohort, Any], Awaitable[None]]

SERVE: Mapping[str, Serve] = ByName(__name__, "serve")

JOINT: Mapping[str, Callable[[ServerContext, Any], Joint]] = ByName(__name__, "joint", everywhere=False)
"""Makes the server's part of the joint model from the state; protocols without an entry cannot be explained."""

ACTIVE: Mapping[str, Callable[[ServerContext, Any], Callable[[Tensor], Joint]]] = ByName(
    __name__, "joint_of_rows", everywhere=False
)
"""Makes joint models that depend on the rows."""

FORESTS: Mapping[str, Callable[[ServerContext, Any], Decided]] = ByName(__name__, "forest", everywhere=False)
"""Makes the forest from the state, in protocols whose model is one."""
