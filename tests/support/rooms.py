"""The folders with code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
LINKED = tuple(sorted(path.name for path in (ROOT / "colonnade").iterdir() if path.is_symlink()))
"""Those that stand in `colonnade/` as links."""
CODE = ("client", "colonnade", "common", "server", "lab/colonnade_lab")
