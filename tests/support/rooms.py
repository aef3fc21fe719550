"""The product's folders, as `colonnade/` links them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = tuple(sorted(path.name for path in (ROOT / "colonnade").iterdir() if path.is_symlink()))
CODE = (*(name for name in ROOMS if name != "experiments"), "lab/colonnade_lab")
"""Those with code, and the laboratory."""
