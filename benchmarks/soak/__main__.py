"""`python -m benchmarks.soak --minutes 120 --out FOLDER`."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import judge
from benchmarks.report import console, describe
from benchmarks.runs import ROOT, free_port
from benchmarks.soak.members import CHECKPOINT, MEMBERS, PARTIES, Authority, Household, Life, Member, colonnade
from benchmarks.soak.page import write
from benchmarks.soak.record import Rounds, Sampler, Tail
from benchmarks.soak.troubles import SHORT_OF_DISK, Disk, Links, Trouble, World, no_disks, troubles
from colonnade.common.conversation.conversation import SERVER

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
        lacking = no_disks(self.out / "probe")
        with ExitStack() as stack:
            port, metrics = free_port(), {name: free_port() for name in MEMBERS}
            links = stack.enter_context(Links(port))
            lines = {name: links.new() for name in PARTIES}
            dials = {name: f"127.0.0.1:{line.port}" for name, line in lines.items()}
            authority = Authority(self.out / "authority", f"127.0.0.1:{port}", dials, metrics)
            disks = {name: stack.enter_context(Disk(self.folders[name])) for name in SHORT_OF_DISK if not lacking}
            members = {name: Member(name, authority.file(name), self.folders[name], self.logs[name])
                       for name in MEMBERS}  # fmt: skip
            household = stack.enter_context(Household(members, self.scratch))
            self._await(2)
            sampler = stack.enter_context(Sampler(household, metrics, min(10.0, max(2.0, self.minutes))))
            self._trouble(World(household, lines, disks, authority, port))
            rounds, codes = self._end(household, authority)
            samples, lives = sampler.samples, household.lives()
        (self.out / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
        return {
            "machine": describe(), "version": _version(), "minutes": self.minutes, "seed": self.seed,
            "begun": self.begun, "disks": lacking or "tmpfs", "ended": codes, "rounds": rounds,
            "rounds_done": self.rounds.done, "troubles": self.told, "sessions": self.rounds.sessions,
            "lives": [asdict(life) for life in lives], **self._judged(rounds, lives, authority),
        }  # fmt: skip

    def _trouble(self, world: World) -> None:
        self.begun = time.time()
        for trouble in troubles(self.seed, self.minutes):
            if time.time() - self.begun > 60 * self.minutes:
                return
            if world.disks or not trouble.kind.startswith("full"):
                self._one(world, trouble)
                self._await(None, trouble.pause)

    def _one(self, world: World, trouble: Trouble) -> None:
        self._look()
        begun, highest = time.time(), self.rounds.highest
        world.perform(trouble)
        over = time.time()
        self._look()
        during = self.rounds.highest - highest
        stuck = not self._await(self.rounds.highest + 2)  # the first may have been on its way
        again = self.rounds.newest - over
        self.told.append({
            "kind": trouble.kind, "members": list(trouble.members), "begin": round(begun - self.begun, 1),
            "lasted": round(over - begun, 2), "during": during, "again": None if stuck else round(again, 2),
        })  # fmt: skip
        (self.out / "troubles.json").write_text(json.dumps(self.told), encoding="utf-8")
        words = "no rounds any more" if stuck else f"rounds again after {again:.1f} s"
        line = f"{(begun - self.begun) / 60:6.1f} min  {trouble}: {words}; round {self.rounds.highest}"
        console.print("\n".join([line, *self.rounds.broken[-1:]]), markup=False, soft_wrap=True)
        if stuck:  # all are restarted after a trouble that the run did not survive, which is recorded
            world.household.stop()
            world.household.begin()
            self._await(self.rounds.highest + 2)

    def _await(self, round: int | None, seconds: float = PATIENCE) -> bool:
        """Waits for a round, or for the seconds alone; False if the round did not come."""
        until = time.monotonic() + seconds
        while round is None or self.rounds.highest < round:
            if time.monotonic() > until:
                return False
            self._look()
            time.sleep(0.1)
        return True

    def _look(self) -> None:
        for event in self._tail.new():
            self.rounds.take(event)

    def _end(self, household: Household, authority: Authority) -> tuple[int, dict[str, int | None]]:
        """Lets the run end soon, without troubles: returns its number of rounds, and the exit codes."""
        household.stop()
        self._look()
        last = (self.rounds.highest // CHECKPOINT) * CHECKPOINT + LAST
        authority.write(last)
        household.begin()
        until = time.monotonic() + PATIENCE
        while any(one.lives[-1].code != 0 for one in household.members.values()) and time.monotonic() < until:
            self._await(None, 0.2)
        self._look()
        return last, {name: one.lives[-1].code for name, one in household.members.items()}

    def _judged(self, rounds: int, lives: list[Life], authority: Authority) -> dict[str, Any]:
        colonnade("up", authority.control(rounds), "--out", self.out / "control")
        control = judge.homes(self.out / "control")
        compared, differing = judge.results(self.rounds.results, self.out / "control")
        books = {name: judge.ledger(self.folders[name], control[name]) for name in PARTIES}
        verified = {name: " ".join(colonnade("ledger", self.folders[name], "--verify").split()) for name in PARTIES}
        (said, noise), (found, odd) = errors(self.logs), codes(lives)
        return {
            "compared": compared, "errors": dict(said), "codes": found, "chains": verified,
            "entries": sum(book[0] for book in books.values()), "repeats": sum(book[1] for book in books.values()),
            "broken": {
                "rounds": self.rounds.broken, "results": differing[:20], "noise": noise[:50], "codes": odd,
                "ledgers": [f"{name}: {fault}" for name, book in books.items() for fault in book[2]],
                "stuck": [one["kind"] for one in self.told if one["again"] is None],
                "orphans": orphans(self.folders, control, self.scratch),
                "parameters": judge.parameters(self.folders, control),
            },
        }  # fmt: skip


# Exit codes after a signal of the soak, the other end's failure, and a failure of the machine (a full disk).
FORESEEN_CODES = {0, 3, 4, 130, -9, -15}
_NUMBERS = re.compile(r"sha256:[0-9a-f…]+|\b[0-9]+(\.[0-9]+)?\b")
_ERROR = re.compile(r"^error: (.*)", re.MULTILINE)
_NOISE = re.compile(r"Traceback|\bE0000|Exception ignored|never (awaited|retrieved)|Warning:|core dumped|Segmentation")


def orphans(soak: dict[str, Path], control: dict[str, Path], scratch: Path) -> list[str]:
    """Files that the control does not have, and temporary files of members."""
    left = [str(path.relative_to(scratch.parent)) for path in scratch.rglob("*") if path.is_file()]
    for name, folder in soak.items():
        kept = {_shape(path) for path in _files(control[name], name)}
        left += [f"{name}/{path}" for path in _files(folder, name) if _shape(path) not in kept]
    return left


def _files(folder: Path, name: str) -> list[Path]:
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if name != SERVER or path.parts[0] != "parties"]


def _shape(path: Path) -> str:
    return _NUMBERS.sub("N", re.sub(r"\d+", "0", path.as_posix()))


def errors(logs: dict[str, Path]) -> tuple[Counter[str], list[str]]:
    """Errors that members printed, without numbers, and lines that no log should have."""
    said, noise = Counter[str](), []
    for name, log in logs.items():
        text = log.read_text(errors="replace", encoding="utf-8")
        said.update(_NUMBERS.sub("N", found)[:160] for found in _ERROR.findall(text))
        noise += [f"{name}: {line[:300]}" for line in text.splitlines() if _NOISE.search(line)]
    return said, noise


def codes(lives: list[Life]) -> tuple[dict[str, dict[str, int]], list[str]]:
    """How often each member ended with each exit code, and the unforeseen ends."""
    found: dict[str, Counter[str]] = {name: Counter() for name in MEMBERS}
    ended = [(life, life.code) for life in lives if life.code is not None]
    for life, code in ended:
        found[life.member][str(code)] += 1
    odd = [
        f"{life.member} ended with code {code} at {life.ended:.1f}"
        for life, code in ended
        if code not in FORESEEN_CODES or (code < 0 and not life.ordered)
    ]
    return {name: dict(counts) for name, counts in found.items()}, odd


def _version() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = (
        os.environ.get("SOAK_COMMIT")
        or subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
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
