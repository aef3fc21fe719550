"""The machine that figures were taken on, by name."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil


def describe() -> str:
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total / 2**30
    return (
        f"{processor(Path('/proc/cpuinfo'))}, {cores} cores, {memory:.0f} GiB; "
        f"Python {platform.python_version()}, torch {version('torch')}"
    )


def processor(cpuinfo: Path) -> str:
    """The model that Linux reports, else the architecture."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()
