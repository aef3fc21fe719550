"""Fuzzes the readers on all cores: `make fuzz`, or `python -m tests.fuzz [TARGET ...]`. See docs/fuzzing.md."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from tests.fuzz.engine import Case, Target, attempt, fuzz, smaller
from tests.fuzz.targets.all import TARGETS

FOUND = Path("build/fuzz")
_CHUNK = 4.0  # seconds of a process, of which every one is forked anew: what leaks or dies takes little with it
_FIRST, _MOST = 500, 100_000


@dataclass
class Tally:
    """What was done with a target."""

    target: Target
    inputs: int = 0
    valid: int = 0
    seconds: float = 0.0
    begun: int = 0  # inputs of chunks that have begun
    failures: dict[str, Path] = field(default_factory=dict)

    @property
    def chunk(self) -> int:
        """Inputs of the next process."""
        if not self.inputs:
            return _FIRST
        return max(50, min(_MOST, int(_CHUNK * self.inputs / max(self.seconds, 1e-3))))


@dataclass(frozen=True)
class Chunk:
    """A process that works on a target."""

    tally: Tally
    seed: str
    count: int
    process: BaseProcess
    trace: Path


def main() -> int:
    """Returns 1 if a reader failed."""
    options = _options()
    torch.set_num_threads(1)
    if options.replay:
        return _replay(options.replay)
    by_name = {target.name: target for target in TARGETS}
    if unknown := [name for name in options.targets if name not in by_name]:
        print(f"no target {unknown[0]}; there are: {', '.join(by_name)}", file=sys.stderr)
        return 2
    tallies = [Tally(by_name[name]) for name in options.targets or by_name]
    for tally in tallies:
        tally.target.pool, tally.target.read  # noqa: B018  # before the processes are forked
    FOUND.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    _work(tallies, _Plan(options.seed, options.count, begun + 60 * options.minutes), options.workers)
    _report(tallies, options.seed, time.monotonic() - begun)
    return int(any(tally.failures for tally in tallies))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all of them if none is named")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together")
    parser.add_argument("--count", type=int, default=0, help="inputs of every target, instead of minutes")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the inputs; the time if left out")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="inputs that were kept")
    return parser.parse_args()


class _Plan:
    """The chunks of all targets by turns, until their inputs or the time are spent."""

    def __init__(self, seed: int, count: int, end: float) -> None:
        self._seed, self._count, self._end = seed, count, end

    def chunks(self, tallies: list[Tally]) -> Iterator[tuple[Tally, str, int]]:
        for number in itertools.count():
            left = [tally for tally in tallies if not self._count or tally.begun < self._count]
            if not left or (not self._count and time.monotonic() > self._end):
                return
            tally = min(left, key=lambda one: one.seconds + one.begun * 1e-12)
            count = min(tally.chunk, self._count - tally.begun) if self._count else tally.chunk
            tally.begun += count
            tally.seconds += 0 if tally.inputs else _CHUNK / 10
            yield tally, f"{self._seed}.{number}", count


def _work(tallies: list[Tally], plan: _Plan, workers: int) -> None:
    running: dict[Connection, Chunk] = {}
    chunks, more, said = plan.chunks(tallies), True, 0.0
    while more or running:
        while more and len(running) < workers:
            if following := next(chunks, None):
                connection, chunk = _start(*following)
                running[connection] = chunk
            else:
                more = False
        for connection in wait(list(running), timeout=1):
            assert isinstance(connection, Connection)
            _finish(running.pop(connection), connection)
        if time.monotonic() - said > 1:
            said = time.monotonic()
            _progress(tallies)
    _progress(tallies)
    print(file=sys.stderr)


def _start(tally: Tally, seed: str, count: int) -> tuple[Connection, Chunk]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(tally.target, seed, count, theirs))
    process.start()
    theirs.close()
    return ours, Chunk(tally, seed, count, process, FOUND / f"{tally.target.name}.last")


def _run(target: Target, seed: str, count: int, answer: Connection) -> None:
    begun = time.process_time()
    valid, failures = fuzz(target, seed, count)
    small = [smaller(target, failure) for failure in failures]
    kept = [(one.case.kept(), str(one)) for one in small]
    answer.send((valid, time.process_time() - begun, kept))
    answer.close()


def _finish(chunk: Chunk, connection: Connection) -> None:
    tally = chunk.tally
    try:
        valid, seconds, kept = connection.recv()
    except EOFError:  # the process has died
        chunk.process.join()
        kept, valid, seconds = _last_input(chunk), 0, _CHUNK
    chunk.process.join()
    tally.inputs, tally.valid, tally.seconds = tally.inputs + chunk.count, tally.valid + valid, tally.seconds + seconds
    for content, said in kept:
        if said in tally.failures:
            continue
        path = FOUND / f"{tally.target.name}-{hashlib.sha256(content).hexdigest()[:12]}.bin"
        path.write_bytes(content)
        tally.failures[said] = path
        print(f"\r\033[K{said}\n  seed {chunk.seed}; replay: python -m tests.fuzz --replay {path}", file=sys.stderr)


def _last_input(chunk: Chunk) -> list[tuple[bytes, str]]:
    """Runs a chunk whose process died once more, and notes every input before it is read."""

    def again() -> None:
        with chunk.trace.open("wb", buffering=0) as file:

            def note(case: Case) -> None:
                file.seek(0)
                file.write(case.kept())
                file.truncate()

            fuzz(chunk.tally.target, chunk.seed, chunk.count, note)

    code = _in_process(again)
    return [(chunk.trace.read_bytes(), f"{chunk.tally.target.name}: the process ended with {code}")]


def _in_process(body: Callable[[], None]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    process.join()
    return process.exitcode


def _replay(paths: list[Path]) -> int:
    failed = 0
    by_name = {target.name: target for target in TARGETS}
    for path in paths:
        name = path.parent.name if path.parent.name in by_name else path.name.rpartition("-")[0]
        failure = attempt(by_name[name], Case.of(path.read_bytes()))
        print(f"{path}: {failure or 'as it has to be'}")
        if failure is not None:
            failed = 1
            import traceback

            traceback.print_exception(failure.error)
    return failed


def _progress(tallies: list[Tally]) -> None:
    inputs, seconds = sum(one.inputs for one in tallies), sum(one.seconds for one in tallies)
    failures = sum(len(one.failures) for one in tallies)
    rate = inputs / seconds if seconds else 0
    print(
        f"\r\033[K{inputs:,} inputs of {len(tallies)} readers, {rate:,.0f} a second and core, {failures} failures",
        end="", file=sys.stderr, flush=True,
    )  # fmt: skip


def _report(tallies: list[Tally], seed: int, seconds: float) -> None:
    for tally in tallies:
        rate = tally.inputs / tally.seconds if tally.seconds else 0
        print(
            f"{tally.target.name:16} {tally.inputs:>12,} inputs  {tally.valid:>10,} valid  {rate:>8,.0f}/s"
            f"  {len(tally.failures)} failures"
        )
    print(f"seed {seed}, {seconds:.0f} s; inputs that failed are in {FOUND}/")


if __name__ == "__main__":
    sys.exit(main())
