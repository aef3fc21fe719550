"""FedBCD, server side: split learning's; the parties take several steps. The box: common/protocols/fedbcd.py."""

from __future__ import annotations

from colonnade.server.protocols.split import joint, serve

__all__ = ["joint", "serve"]
