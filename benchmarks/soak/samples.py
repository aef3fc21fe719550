"""Figures of every process, taken at intervals."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.soak.members import Household, Member
from benchmarks.soak.record import Tail

_QUEUE = re.compile(r"^colonnade_queue_messages\{.*\} (\S+)$", re.MULTILINE)
_REFUSED = re.compile(r"^colonnade_refused_connections_total (\S+)$", re.MULTILINE)

Sample = dict[str, Any]


class Sampler:
    """Takes samples in a thread. A context manager.

    Args:
        metrics: the port of each member's metrics.
        shared: figures of the whole federation at this moment.
    """

    def __init__(
        self, household: Household, metrics: dict[str, int], every: float, shared: Callable[[], Sample]
    ) -> None:
        self.samples: list[Sample] = []
        self._household, self._metrics, self._every, self._shared = household, metrics, every, shared
        self._tails = {name: Tail(one.folder / "events.jsonl") for name, one in household.members.items()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            now, shared = time.time(), self._shared()
            for name, member in self._household.members.items():
                if (found := self._one(name, member)) is not None:
                    self.samples.append({"time": round(now, 2), "member": name, **found, **shared})

    def _one(self, name: str, member: Member) -> Sample | None:
        process = member.watched()
        if process is None:
            return None
        self._tails[name].new()
        with suppress(psutil.Error):
            times = process.cpu_times()
            return {
                "life": len(member.lives),
                "rss": process.memory_info().rss,
                "descriptors": process.num_fds(),
                "threads": process.num_threads(),
                "cpu": times.user + times.system,
                "events": self._tails[name].lines,
                "log": member.log.stat().st_size,
                **_exposed(self._metrics[name]),
            }
        return None


def _exposed(port: int) -> Sample:
    with suppress(OSError, ValueError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as page:
        text = page.read().decode()
        queued, refused = _QUEUE.findall(text), _REFUSED.findall(text)
        return {"queued": sum(map(float, queued)), "refused": float(refused[0]) if refused else None}
    return {"queued": None, "refused": None}
