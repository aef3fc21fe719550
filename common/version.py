"""The version of Colonnade, as two ends compare it."""

from __future__ import annotations

VERSION = "0.2.0.dev0"
