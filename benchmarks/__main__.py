"""`python -m benchmarks [NAME ...]`: runs the benchmarks, all or some, and prints one table.

`make bench` runs all. `--out FILE.json` stores every result as it comes, and `--resume` continues: benchmarks with
figures are not run again, failed or skipped ones are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.kept import Kept
from benchmarks.registry import BENCHMARKS, Benchmark
from benchmarks.report import Result, console, markdown, show

told = Console(stderr=True, highlight=False)  # stderr: the table on stdout may go into a file


def main(argv: Sequence[str] | None = None, benchmarks: Mapping[str, Benchmark] = BENCHMARKS) -> int:
    """Runs the named benchmarks, or all. Returns 1 if one failed or a bound is broken, else 0."""
    options = _options(argv, benchmarks)
    if options.list:
        for name, benchmark in benchmarks.items():
            console.print(f"{name:14} {benchmark.minutes:4g} min  {benchmark.about}", markup=False, soft_wrap=True)
        return 0
    kept = Kept(options.out, machine.describe())
    if options.resume:
        kept.read()
    names = options.names or list(benchmarks)
    for name in names:
        if not kept.done(name):
            told.print(f"{name} ...", style="dim")
            kept.add(name, run(benchmarks[name]))
    results = {name: kept.results[name] for name in benchmarks if name in names}
    if options.markdown:
        console.print(markdown(results, kept.machine), markup=False, soft_wrap=True)
    else:
        show(results, kept.machine)
    return 0 if all(result.holds for result in results.values()) else 1


def run(benchmark: Benchmark) -> Result:
    """Result of one benchmark; an error becomes its result, so that the others continue."""
    if missing := benchmark.missing():
        return Result(skipped=missing)
    begin = time.monotonic()
    try:
        figures, failed = tuple(benchmark.call()), ""
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it is, the other figures count
        figures, failed = (), " ".join(f"{type(error).__name__}: {error}".split())[:300]
    when = datetime.now(UTC).isoformat(" ", "minutes")
    return Result(figures, failed=failed, when=when, seconds=round(time.monotonic() - begin, 1))


def _options(argv: Sequence[str] | None, benchmarks: Mapping[str, Benchmark]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="runs benchmarks, each against a floor")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is named")
    parser.add_argument("--list", action="store_true", help="says what there is, with minutes on two free cores")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="keeps every result as it comes")
    parser.add_argument("--resume", action="store_true", help="goes on with what FILE.json holds")
    parser.add_argument("--markdown", action="store_true", help="prints the table as docs/performance.md holds it")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in benchmarks]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(benchmarks)}")
    if options.resume and options.out is None:
        parser.error("--resume: there is nothing to go on from; name the file with --out FILE.json")
    if options.out is not None and options.out.exists() and not options.resume:
        parser.error(f"--out: {options.out} is there already; go on with --resume, or name another file")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
