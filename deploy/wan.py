"""Puts a container's member behind a long line, then becomes it: the entry point of compose.wan.yml.

    wan.py DELAY JITTER BANDWIDTH PARTY COMMAND...    for example: 40ms 10ms 50Mbit/s party1 colonnade client ...

DELAY, give or take JITTER, is of one way. Where the kernel has netem, this root process shapes the container's link
(netem only holds what is sent, so that the delay of both ways goes there), and gives up being root. Where it has not,
the party injects the same by its own means. Which of the two it was is said on standard error.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_MEMBER = 10001
_UNITS = {"ms": 1.0, "s": 1000.0}


def main(delay: str, jitter: str, bandwidth: str, party: str, *command: str) -> None:
    """Shapes the link, or asks the party to; then runs the command in this process, as the members' user."""
    middle, spread = _milliseconds(delay), _milliseconds(jitter)
    line = f"{delay} each way, give or take {jitter}, and {bandwidth}"
    refused = _shape(middle, spread, bandwidth)
    if refused:
        print(f"wan: no netem here ({refused}): {party} itself injects {line}", file=sys.stderr, flush=True)
        least, most = max(0.0, middle - spread), middle + spread
        command += ("--chaos", f"{party}: jitter=uniform({least:g}ms, {most:g}ms), bandwidth={bandwidth}")
    else:
        print(f"wan: netem gives {party} a line of {line} (of what it sends)", file=sys.stderr, flush=True)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_MEMBER)
        os.setuid(_MEMBER)
    os.execvp(command[0], command)  # noqa: S606  # what compose says


def _shape(middle: float, spread: float, bandwidth: str) -> str:
    """Why the kernel would not, or nothing."""
    rate = re.sub(r"/s$", "", bandwidth).lower()
    for link in sorted(path.name for path in Path("/sys/class/net").iterdir() if path.name != "lo"):
        held = ("delay", f"{2 * middle:g}ms", f"{2 * spread:g}ms", "rate", rate)
        try:
            done = subprocess.run(  # noqa: S603
                ["tc", "qdisc", "replace", "dev", link, "root", "netem", *held],  # noqa: S607
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as missing:
            return str(missing)
        if done.returncode:
            return " ".join(done.stderr.split())
    return ""


def _milliseconds(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)(ms|s)", text)
    if found is None:
        sys.exit(f"error: wan.py: {text!r} is no time: write 40ms or 0.5s")
    return float(found[1]) * _UNITS[found[2]]


if __name__ == "__main__":
    main(*sys.argv[1:])
