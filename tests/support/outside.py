"""The example of a protocol in a package of its own, and what puts such a package where Python finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
EXAMPLE = PLUGIN / "colonnade_signs.py"

# (name of the protocol, module, its source, name of the package) -> the folder
Install = Callable[..., Path]
