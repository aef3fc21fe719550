"""Runs every protocol in three ways; compares what is left with stored records, and numbers with another build's.

    python -m tests.golden                          all protocols; exit code 1 if anything differs
    python -m tests.golden --only split fedvs       some of them
    python -m tests.golden --ways simulate          some of the ways
    python -m tests.golden --threads                members of `up` as threads over gRPC: the same messages, sooner
    python -m tests.golden --form                   the records alone, without another build
    python -m tests.golden --write                  stores the records anew

The other build is the commit in tests/golden/revision.txt, or `--against REVISION`. It runs on this machine in the same
minutes, so that numbers can be compared to the last bit: kernels differ from one processor to the next.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.golden.federations import PROTOCOLS
from tests.golden.left import form, numbers
from tests.golden.runs import ROOT, WAYS, RunError, Runs, build

RECORDS = Path(__file__).parent / "records"
REVISION = Path(__file__).parent / "revision.txt"

AS_IT_COMES = {("zoo_vfl", "up")}
"""Who answers first decides on the numbers, and on the order of messages."""
MEND = "Mend what differs. If it is meant: python -m tests.golden --write, and name it in CHANGELOG.md with its reason."
MEND_NUMBERS = f"If these numbers are meant: the commit that makes them, into {REVISION.relative_to(ROOT)}"


def main(words: Sequence[str] | None = None, *, here: bool = False) -> int:
    """Returns 0 if nothing differs.

    Args:
        words: the arguments.
        here: the working tree's runs are in this process, and so without processes of their own.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(PROTOCOLS), choices=PROTOCOLS, metavar="PROTOCOL")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--form", action="store_true")
    parser.add_argument("--against", default=REVISION.read_text(encoding="utf-8").strip(), metavar="REVISION")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(words)
    other = None if given.form or given.write else build(given.against)
    if other is None and not (given.form or given.write):
        parser.error(f"{given.against} is not in this repository: git fetch --unshallow, or compare --form alone")
    differing = 0
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        theirs = None if other is None else stack.enter_context(Runs(other, Path(scratch) / "theirs"))
        ours = stack.enter_context(Runs(None if here else ROOT, Path(scratch) / "ours", processes=not given.threads))
        jobs = [(protocol, way) for protocol in given.only for way in given.ways]
        there = [None if theirs is None else theirs.begin(*job) for job in jobs]  # first: they have a process
        begun = [ours.begin(*job) for job in jobs]
        for job, own, others in zip(jobs, begun, there, strict=True):
            try:
                lines = list(compare(*job, own.result(), others.result() if others else None, write=given.write))
            except RunError as failed:
                lines = [str(failed)]
            print(*job, "differs" if lines else "stored" if given.write else "equal", flush=True)
            print(*lines, sep="\n", end="\n" if lines else "")
            differing += bool(lines)
    if differing:
        print(MEND)
    return min(differing, 1)


def compare(protocol: str, way: str, own: Path, others: Path | None, *, write: bool = False) -> Iterator[str]:
    """Lines about what differs.

    Args:
        protocol, way: of the run.
        own: its folder.
        others: that of the other build; None compares no numbers.
        write: stores the form instead.
    """
    clock, file = WAYS[way].clock, RECORDS / f"{protocol}.json"
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found = form(own, clock, ordered=(protocol, way) not in AS_IT_COMES)
    if write:
        RECORDS.mkdir(exist_ok=True)
        file.write_text(json.dumps({**stored, way: found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    yield from _other_form(stored.get(way, {}), found)
    if others is not None and (protocol, way) not in AS_IT_COMES:
        yield from _other_numbers(numbers(others, clock), numbers(own, clock))


def _other_form(stored: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for part in sorted({*stored, *found}):
        before, now = (json.dumps(each.get(part), indent=1, sort_keys=True).splitlines() for each in (stored, found))
        for line in list(difflib.unified_diff(before, now, n=1, lineterm=""))[2:]:
            yield f"  {part}: - stored, + found" if line.startswith("@@") else f"  {line}"


def _other_numbers(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """The first number of each file that is not as the other build has it."""
    differing = [place for place in sorted({*before, *now}) if before.get(place) != now.get(place)]
    for place in differing:
        old, new = (_numbered(each.get(place, {})) for each in (before, now))
        key = next(key for key in sorted({*old, *new}) if old.get(key) != new.get(key))
        yield f"  {place}, {key}: {old.get(key)} by the other build, {new.get(key)} by this one"
    if differing:
        yield f"  {MEND_NUMBERS}"


def _numbered(values: Any) -> dict[Any, Any]:
    return dict(enumerate(values)) if isinstance(values, list) else values


if __name__ == "__main__":
    sys.exit(main())
