"""`federation.protocol`: the keys common to all protocols."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from colonnade.common.section import Section


class ProtocolConfig(Section):
    """Base of every protocol's config: its name, which selects the protocol.

    Attributes:
        active: True if the server holds columns of its own (`server.active`), as the active party.
    """

    active: ClassVar[bool] = False

    name: str = Field(description="the protocol, which decides the other keys of this section")

    def model_post_init(self, _context: Any) -> None:
        """Counts the name as set, so that a dump of the set keys says which protocol it is."""
        self.model_fields_set.add("name")


def local_steps(config: ProtocolConfig) -> int:
    """Number of steps that a party takes on one batch: tau, Q, or 1."""
    return int(getattr(config, "tau", getattr(config, "local_steps", 1)))
