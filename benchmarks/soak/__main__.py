"""`python -m benchmarks.soak --minutes 120 --out FOLDER`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.flood import _free_port
from benchmarks.report import console, describe
from benchmarks.runs import ROOT
from benchmarks.soak import judge
from benchmarks.soak.authority import CHECKPOINT, Authority, colonnade
from benchmarks.soak.link import Links
from benchmarks.soak.members import Household, Member
from benchmarks.soak.page import write
from benchmarks.soak.record import Rounds, Sampler, Tail
from benchmarks.soak.schedule import MEMBERS, PARTIES, SERVER, SHORT_OF_DISK, troubles
from benchmarks.soak.troubles import Disk, Trouble, World, available

PATIENCE = 180.0  # seconds in which rounds have to go on
LAST = 3 * CHECKPOINT  # rounds after the last trouble


class Soak:
    def __init__(self, out: Path, minutes: float, seed: int) -> None:
        self.out, self.minutes, self.seed = out.resolve(), minutes, seed
        self.folders = {name: self.out / "members" / name for name in MEMBERS}
        self.logs = {name: self.out / "logs" / f"{name}.log" for name in MEMBERS}
        self.scratch = self.out / "tmp"
        self.rounds, self._tail = Rounds(), Tail(self.folders[SERVER] / "events.jsonl")
        self.told: list[dict[str, Any]] = []
        self.begun = 0.0

    def run(self) -> dict[str, Any]:
        for folder in (self.out, self.out / "members", self.out / "logs", self.scratch):
            folder.mkdir(exist_ok=folder == self.out)
        no_disks = available()
        with ExitStack() as stack:
            port, metrics = _free_port(), {name: _free_port() for name in MEMBERS}
            links = stack.enter_context(Links(port))
            lines = {name: links.new() for name in PARTIES}
            dials = {name: f"127.0.0.1:{line.port}" for name, line in lines.items()}
            authority = Authority(self.out / "authority", f"127.0.0.1:{port}", dials, metrics)
            authority.found()
            disks = {name: Disk(self.folders[name]) for name in SHORT_OF_DISK if not no_disks}
            for each in disks.values():
                stack.enter_context(each)
            household = Household(self._members(authority), self.scratch)
            world = World(household, lines, disks, authority, port)
            every = min(10.0, max(2.0, self.minutes))
            sampler = Sampler(household, metrics, every, lambda: {"round": self.rounds.highest})
            stack.enter_context(household)
            self._await(2, PATIENCE)
            stack.enter_context(sampler)
            self._trouble(world)
            rounds, code = self._end(world)
            sampled, lives = sampler.samples, household.lives()
        results = {
            "machine": describe(), "version": _version(), "minutes": self.minutes, "seed": self.seed,
            "begun": self.begun, "disks": no_disks or "tmpfs", "seconds": self.told[-1]["end"] if self.told else 0,
            "ended": code, "rounds": rounds, "rounds_done": self.rounds.done, "troubles": self.told,
            "events": dict(self.rounds.kinds), "lives": [asdict(life) for life in lives],
        }  # fmt: skip
        results |= self._judged(rounds, lives, authority)
        (self.out / "samples.json").write_text(json.dumps(sampled), encoding="utf-8")
        return results

    def _members(self, authority: Authority) -> dict[str, Member]:
        commands = {name: SERVER if name == SERVER else "client" for name in MEMBERS}
        return {
            name: Member(
                name,
                [commands[name], str(authority.file(name)), "--in", str(self.folders[name])],
                self.folders[name],
                self.logs[name],
            )
            for name in MEMBERS
        }

    def _trouble(self, world: World) -> None:
        self.begun = time.time()
        for trouble in troubles(self.seed, self.minutes):
            if time.time() - self.begun > 60 * self.minutes:
                return
            self._one(world, trouble)
            self._await_seconds(trouble.pause)

    def _one(self, world: World, trouble: Trouble) -> None:
        self._look()
        begun, highest = time.time(), self.rounds.highest
        note = world.perform(trouble)
        over = time.time()
        self._look()
        during, reached = self.rounds.highest - highest, self.rounds.highest
        stuck = self._await(reached + 2, PATIENCE)  # the first may have been on its way
        again = self.rounds.newest - over
        self.told.append(
            {
                "kind": trouble.kind, "members": list(trouble.members), "begin": round(begun - self.begun, 1),
                "over": round(over - self.begun, 1), "end": round(time.time() - self.begun, 1),
                "lasted": round(over - begun, 2), "during": during, "again": None if stuck else round(again, 2),
                "note": note,
            }
        )  # fmt: skip
        (self.out / "troubles.json").write_text(json.dumps(self.told), encoding="utf-8")
        words = "no rounds any more" if stuck else f"rounds again after {again:.1f} s"
        console.print(
            f"{(begun - self.begun) / 60:6.1f} min  {trouble}: {words}; round {self.rounds.highest} {note}",
            markup=False, soft_wrap=True,
        )  # fmt: skip
        if self.rounds.broken:
            console.print("broken:", self.rounds.broken[-1], markup=False)
        if stuck:
            self._restart(world)

    def _restart(self, world: World) -> None:
        """Restarts all members after a trouble that the run did not survive, which is recorded."""
        for name in world.stop_all():
            world.household.signal(name, 9)
        world.household.begin()
        self._await(self.rounds.highest + 2, PATIENCE)

    def _await_seconds(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(0.2)

    def _await(self, round: int, seconds: float) -> bool:
        """Waits for a round; True if it did not come."""
        until = time.monotonic() + seconds
        while self.rounds.highest < round:
            if time.monotonic() > until:
                return True
            self._look()
            time.sleep(0.1)
        return False

    def _look(self) -> None:
        for event in self._tail.new():
            self.rounds.take(event)

    def _end(self, world: World) -> tuple[int, dict[str, int | None]]:
        """Lets the run end soon, without troubles: returns its number of rounds, and the exit codes."""
        for name in world.stop_all():
            world.household.signal(name, 9)
        self._look()
        last = (self.rounds.highest // CHECKPOINT) * CHECKPOINT + LAST
        world.authority.write(last)
        world.household.begin()
        until = time.monotonic() + PATIENCE
        done = [one.lives for one in world.household.members.values()]
        while any(lives[-1].code != 0 for lives in done) and time.monotonic() < until:
            self._look()
            time.sleep(0.2)
        self._look()
        return last, {lives[-1].member: lives[-1].code for lives in done}

    def _judged(self, rounds: int, lives: list[Any], authority: Authority) -> dict[str, Any]:
        left = self.out / "control"
        begin = time.monotonic()
        colonnade("up", authority.control(rounds), "--out", left)
        seconds = time.monotonic() - begin
        control = {SERVER: left, **{name: left / "parties" / name for name in PARTIES}}
        compared, differing = judge.results(self.rounds.results, left)
        books, wrong = judge.ledgers(self.folders, control)
        said, noise = judge.errors(self.logs)
        found, odd = judge.codes(lives)
        equal = judge.parameters(self.folders, control)
        stuck = [one["kind"] for one in self.told if one["again"] is None]
        orphans = judge.orphans(self.folders, control, self.scratch)
        return {
            "control_seconds": round(seconds, 1), "equal": equal, "compared": compared, "ledgers": books,
            "errors": dict(said), "codes": found,
            "broken": {
                "rounds": self.rounds.broken, "results": differing[:20], "ledgers": wrong, "noise": noise[:50],
                "codes": odd, "stuck": stuck, "orphans": orphans,
                "parameters": [name for name, same in equal.items() if not same],
            },
        }  # fmt: skip


def _version() -> str:
    commit = (
        os.environ.get("SOAK_COMMIT")
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    return " ".join(colonnade("--version").split()) + (f" ({commit})" if commit else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a soak; returns 1 if something is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="a federation under trouble")
    parser.add_argument("--minutes", type=float, default=120.0, help="of trouble; 3 is a quick try")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    options = parser.parse_args(argv)
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"--out: {options.out} is not empty; name another folder")
    results = Soak(options.out, options.minutes, options.seed).run()
    write(options.out, results)
    broken = {what: found for what, found in results["broken"].items() if found}
    console.print_json(data=broken or {"broken": "nothing"})
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
