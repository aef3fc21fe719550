"""VFL-AFE, server side: that of split learning. The box: common/protocols/vfl_afe.py."""

from __future__ import annotations

from colonnade.server.protocols.split import joint, serve

__all__ = ["joint", "serve"]
