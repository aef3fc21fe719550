"""Pages about where we stand."""

from __future__ import annotations
from pathlib import Path


def write_pages(out, papers, standings, seeds, *, quick):
    return []
