"""VFL-AFE, party side: split learning's, with a context that protects and adjusts. Box: common/protocols/vfl_afe.py."""

from __future__ import annotations

from colonnade.client.protocols.split import local, participate

__all__ = ["local", "participate"]
