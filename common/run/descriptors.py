"""Limit of open files: raises the soft limit, and bounds the share of connections."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from colonnade.common.errors import EnvironmentFault

RESERVE = 128  # for checkpoints, ledger, summary, data and other files of a run
MOST = 512  # connections; each costs about 70 kB from its first byte on
_UNLIMITED = 1 << 16
_FOR_OTHERS = 64  # descriptors left for files and other listeners
_LEAST = 16


def raise_limit() -> None:
    """Raises the soft limit to the hard one, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _UNLIMITED if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # a sandbox forbids it
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections(needed: int) -> int:
    """Maximum concurrent connections of a port that leaves the reserve free; refuses fewer than `needed`."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return MOST
    left = limit - _open_now() - RESERVE
    if left < needed:
        raise EnvironmentFault(
            f"this process may open {limit} files, which leaves {max(left, 0)} for {needed} connections that it needs",
            hint=f"raise the hard limit: ulimit -Hn {limit + needed - left}, or LimitNOFILE of the service",
        )
    return min(left, MOST)


def affordable(most: int) -> int:
    """Maximum connections of one listener: `most`, or a third of the descriptors that the limit leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = most * 3 if soft == resource.RLIM_INFINITY else soft - _FOR_OTHERS
    return max(_LEAST, min(most, free // 3))


def _open_now() -> int:
    for folder in (Path("/proc/self/fd"), Path("/dev/fd")):
        if folder.is_dir():
            return sum(1 for _ in folder.iterdir())
    return RESERVE
