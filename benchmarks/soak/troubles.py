"""Performs troubles."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from benchmarks.soak.authority import Authority
from benchmarks.soak.disk import Disk
from benchmarks.soak.link import Link
from benchmarks.soak.members import Household
from benchmarks.soak.schedule import STRANGERS, Trouble
from benchmarks.soak.strangers import knock

UNTIL_TOLD = float("inf")
FAREWELL = 20.0  # seconds that members have to end after SIGTERM


@dataclass
class World:
    """Everything that troubles can affect."""

    household: Household
    links: dict[str, Link]
    disks: dict[str, Disk]
    authority: Authority
    port: int

    def perform(self, trouble: Trouble) -> str:
        """Causes a trouble, and ends its cause. Returns a note, or ""."""
        first = trouble.members[0]
        if trouble.kind in STRANGERS:
            count = knock(trouble.kind, self.port, self.authority.keys(first).parent, trouble.seconds)
            return f"{count} connections" if count else ""
        match trouble.kind.split()[0]:
            case "kill":
                self.household.end(trouble.members, signal.SIGKILL, trouble.seconds)
                time.sleep(trouble.seconds)
            case "stop":
                self.household.end(trouble.members, signal.SIGTERM, trouble.seconds)
                time.sleep(trouble.seconds)
            case "freeze":
                self.household.signal(first, signal.SIGSTOP)
                time.sleep(trouble.seconds)
                self.household.signal(first, signal.SIGCONT)
            case "cut":
                self.links[first].cut()
            case "hold":
                self.links[first].hold()
                time.sleep(trouble.seconds)
                self.links[first].mend()
            case "close":
                self.links[first].close()
                time.sleep(trouble.seconds)
                self.links[first].mend()
            case "full":
                return self._full(first, trouble.seconds)
            case "list":
                self._unreadable(trouble.seconds)
            case "renew":
                self._renewed(first, new_key=False)
            case "revoke":
                self.authority.revoke(first, "a lost laptop")
                time.sleep(trouble.seconds)
                self._renewed(first, new_key=True)
        return ""

    def stop_all(self) -> list[str]:
        """Tells all to end; returns those that did not within `FAREWELL`."""
        self.household.end(tuple(self.household.members), signal.SIGTERM, UNTIL_TOLD)
        return self.household.await_ends(FAREWELL)

    def _full(self, name: str, seconds: float) -> str:
        if name not in self.disks:
            return "left out: no file system of its own"
        self.disks[name].fill()
        time.sleep(seconds)
        self.disks[name].free()
        return ""

    def _unreadable(self, seconds: float) -> None:
        path = self.authority.revoked
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        time.sleep(seconds)
        path.write_bytes(whole)

    def _renewed(self, name: str, *, new_key: bool) -> None:
        slow = self.stop_all()
        for each in slow:
            self.household.signal(each, signal.SIGKILL)
        self.authority.renew(name, new_key=new_key)
        self.household.begin()
