"""`python -m benchmarks [NAME ...]`: runs the benchmarks, all or some, and prints one table.

`make bench` runs all. `--out FILE.json` stores every result as it comes, and `--resume` continues: benchmarks with
figures are not run again, failed or skipped ones are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks import (
    afe,
    blinding,
    communication,
    czofo,
    disk,
    epoch,
    exchange,
    fedvs,
    flood,
    halves,
    pages,
    predict,
    processes,
    psi,
    quantise,
    ranks,
    scaling,
    shares,
    tables,
    trees,
)
from benchmarks.report import Figure, Result, console, describe, markdown, show
from colonnade.common.data.known_sets.catalogue import KNOWN, VARIABLE, presence
from colonnade.common.run.files import write_durably


@dataclass(frozen=True)
class Benchmark:
    call: Callable[[], list[Figure]]
    minutes: float
    sets: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The first line of its module's docstring, or of its function's where the module has several."""
        documented = self.call if self.call.__name__ != "main" else sys.modules[self.call.__module__]
        return (documented.__doc__ or "").splitlines()[0]

    def missing(self) -> str:
        """Why it cannot be run, and what to do; "" if all of its data sets are here."""
        for name in self.sets:
            found = presence(name, KNOWN[name])
            if found is None or found.files < len(KNOWN[name].files):
                return f"{name} is not here: set {VARIABLE}, or run `colonnade datasets fetch {name}`"
        return ""


BENCHMARKS: Mapping[str, Benchmark] = {
    "trees": Benchmark(trees.main, 1, ("adult",)),
    "shapes": Benchmark(trees.shapes, 1, ("adult",)),
    "trees-wide": Benchmark(trees.wide, 1),
    "trees-large": Benchmark(trees.large, 1),
    "auxiliary": Benchmark(epoch.auxiliary, 0.2),
    "field": Benchmark(fedvs.main, 0.5),
    "blinding": Benchmark(blinding.main, 1, ("mnist",)),
    "recovery": Benchmark(blinding.recovery, 6),
    "quantise": Benchmark(quantise.main, 1),
    "exchange": Benchmark(exchange.main, 0.3),
    "start": Benchmark(processes.start, 1, ("mnist",)),
    "halves": Benchmark(halves.main, 0.3, ("fashion-mnist",)),
    "pages": Benchmark(pages.main, 1),
    "predict": Benchmark(predict.main, 1),
    "serve": Benchmark(predict.serve, 0.5),
    "split": Benchmark(epoch.split, 1, ("mnist",)),
    "epoch": Benchmark(epoch.main, 2, ("mnist",)),
    "checkpoints": Benchmark(epoch.checkpoints, 1.5, ("mnist",)),
    "psi": Benchmark(psi.main, 3),
    "psi-checks": Benchmark(psi.checks, 3),
    "psi-small": Benchmark(psi.small, 2),
    "psi-curve": Benchmark(psi.curve, 15),
    "coded": Benchmark(fedvs.coded, 1, ("fashion-mnist",)),
    "czofo": Benchmark(czofo.main, 1, ("mnist",)),
    "afe": Benchmark(afe.main, 1),
    "scaling": Benchmark(scaling.main, 1),
    "processes": Benchmark(processes.main, 1),
    "many": Benchmark(processes.many, 4),
    "python": Benchmark(processes.python, 1),
    "shares": Benchmark(shares.main, 1),
    "ranks": Benchmark(ranks.main, 0.5),
    "stragglers": Benchmark(processes.stragglers, 4),
    "tables": Benchmark(tables.main, 1),
    "disk": Benchmark(disk.main, 1),
    "disk-large": Benchmark(disk.large, 10),
    "flood": Benchmark(flood.main, 5),
    "communication": Benchmark(communication.main, 10, ("mnist",)),
    "accuracy": Benchmark(communication.accuracy, 30, ("mnist",)),
}


class Kept:
    """Results by benchmark; a path of None keeps them in memory."""

    def __init__(self, path: Path | None, machine: str) -> None:
        self._path, self.machine = path, machine
        self.results: dict[str, Result] = {}

    def read(self) -> None:
        """Reads an earlier bench's results, if any. Raises SystemExit for another file or machine."""
        if self._path is None or not self._path.is_file():
            return
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            machine, trees = content["machine"], content["results"]
            results = {name: Result(**tree | {"figures": tuple(Figure(**one) for one in tree["figures"])})
                       for name, tree in trees.items()}  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            raise SystemExit(f"{self._path}: no results of a bench ({wrong!r}); remove it, or name another") from None
        if machine != self.machine:
            raise SystemExit(f"{self._path}: taken on {machine}, and this is {self.machine}; name another file")
        self.results = results

    def done(self, name: str) -> bool:
        return name in self.results and not (self.results[name].failed or self.results[name].skipped)

    def add(self, name: str, result: Result) -> None:
        self.results[name] = result
        if self._path is not None:
            tree = {"machine": self.machine, "results": {each: asdict(kept) for each, kept in self.results.items()}}
            write_durably(self._path, json.dumps(tree, indent=1).encode())


told = Console(stderr=True, highlight=False)  # stderr: the table on stdout may go into a file


def main(argv: Sequence[str] | None = None, benchmarks: Mapping[str, Benchmark] = BENCHMARKS) -> int:
    """Runs the named benchmarks, or all. Returns 1 if one failed or a bound is broken, else 0."""
    options = _options(argv, benchmarks)
    if options.list:
        for name, benchmark in benchmarks.items():
            console.print(f"{name:14} {benchmark.minutes:4g} min  {benchmark.about}", markup=False, soft_wrap=True)
        return 0
    kept = Kept(options.out, describe())
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
    parser.add_argument("--markdown", action="store_true", help="prints the table for docs/results/performance.md")
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
