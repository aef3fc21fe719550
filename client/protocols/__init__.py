"""The party side of every protocol by name, a module each: common/contracts/registry.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local, Splits
from colonnade.common.contracts.registry import ByName
from colonnade.common.conversation.conversation import Link

# The last argument is `federation.protocol`, of the protocol's own type.
Participate = Callable[[ClientContext, Link, Any], Awaitable[None]]

PARTICIPATE: Mapping[str, Participate] = ByName(__name__, "participate")

LOCAL: Mapping[str, Callable[[ClientContext, Any], Local]] = ByName(__name__, "local", everywhere=False)
"""A party's part of the joint model, from its state."""

SPLITS: Mapping[str, Callable[[ClientContext, Any], Splits]] = ByName(__name__, "splits", everywhere=False)
"""A party's part of a forest, from its state."""
