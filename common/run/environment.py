from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from colonnade.common.version import VERSION

_PACKAGES = ("torch", "numpy", "grpcio", "protobuf")


def describe_environment() -> dict[str, str]:
    """Versions in this process: Colonnade, Python, numerical and network libraries, system and processors."""
    packages = {name: _version(name) for name in _PACKAGES}
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count() or 1} processors"
    return {"colonnade": VERSION, "python": platform.python_version(), **packages, "system": system}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
