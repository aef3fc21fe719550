"""`federation.protocol`, as far as all protocols have it alike."""

from __future__ import annotations

from typing import ClassVar

from colonnade.common.section import Section


class ProtocolConfig(Section):
    """What every protocol's config has: its name, which chooses the protocol.

    Attributes:
        active: whether the server holds columns of its own (`server.active`), as the active party.
    """

    active: ClassVar[bool] = False

    name: str


def local_steps(config: ProtocolConfig) -> int:
    """How many steps a party takes along one batch: tau, Q, or 1."""
    return int(getattr(config, "tau", getattr(config, "local_steps", 1)))
