"""The colours of pictures: of what is reached, of what is short, and of what waits to be run."""

from __future__ import annotations

from collections.abc import Mapping

FILLS: Mapping[bool | None, str] = {True: "#0072b2", False: "#d55e00", None: "#888"}
"""By whether it is reached: blue and vermilion, which those tell apart who see no red or no green."""
