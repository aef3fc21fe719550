"""All targets."""

from __future__ import annotations

from tests.fuzz.targets import records, wire

TARGETS = (*wire.TARGETS, *records.TARGETS)
