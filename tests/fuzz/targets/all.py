"""All targets."""

from __future__ import annotations

from tests.fuzz.targets import records, stores, wire

TARGETS = (*wire.TARGETS, *records.TARGETS, *stores.TARGETS)
