"""Time limit for events that happen soon: it ends tests that hang, and is long enough for a busy machine."""

from __future__ import annotations

PATIENCE = 500.0
