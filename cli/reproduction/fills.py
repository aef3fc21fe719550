"""The colours of pictures: of what is reached, of what is short, and of what waits to be run."""

from __future__ import annotations

from collections.abc import Mapping

FILLS: Mapping[bool | None, str] = {True: "#2ca02c", False: "#d62728", None: "#888"}
"""By whether it is reached."""
