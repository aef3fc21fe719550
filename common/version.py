"""The version of Colonnade, which two ends compare."""

from __future__ import annotations

VERSION = "0.2.0.dev0"
