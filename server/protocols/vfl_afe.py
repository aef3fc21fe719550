"""VFL-AFE, the server's half: split learning's. The box: common/protocols/vfl_afe.py."""

from __future__ import annotations

from colonnade.server.protocols.split import joint, serve

__all__ = ["joint", "serve"]
