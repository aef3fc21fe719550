"""All targets."""

from __future__ import annotations

from tests.fuzz.targets import identities, records, services, settings, stores, tables, wire

_FILES = (wire, records, stores, settings, identities, services, tables)
TARGETS = tuple(target for file in _FILES for target in file.TARGETS)
