"""All targets."""

from __future__ import annotations

from tests.fuzz.targets import wire

TARGETS = (*wire.TARGETS,)
