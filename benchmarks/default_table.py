"""Every protocol on every set with its defaults, beside the best of a search: the tables of docs/results/defaults.md.

    python -m benchmarks.default_table FOLDER [--trials 10] [--jobs 2] [--write]

compares on the sets of benchmarks/learning_sets.py, one folder a set, and prints the tables; `--write` puts them into
docs/results/defaults.md. Run it again to continue an interrupted comparison. The five largest sets have no search,
unless `--search-all` is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import colonnade
from benchmarks.learning_sets import write
from colonnade.common.errors import ColonnadeError

PAGE = Path(__file__).parent.parent / "docs" / "results" / "defaults.md"
_BEGIN, _END = "<!-- tables -->", "<!-- end of tables -->"
_ROWS = 5000
_LARGER = ("scene15", "adult", "credit", "mnist", "fashion")


@dataclass(frozen=True)
class SetResult:
    name: str
    record: dict[str, Any]

    @property
    def metric(self) -> str:
        return str(self.record["metric"])

    def of(self, protocol: str) -> dict[str, Any]:
        found: dict[str, Any] = next(line for line in self.record["protocols"] if line["protocol"] == protocol)
        return found


def compare_all(folder: Path, trials: int, jobs: int, unsearched: Iterable[str]) -> list[SetResult]:
    """Compares on every set that has no result yet; the sets in `unsearched` get no search."""
    found = []
    for path in write(folder / "sets"):
        out = folder / path.stem
        print(f"== {path.stem}", flush=True)
        try:
            searched = 0 if path.stem in unsearched else trials
            colonnade.compare(path, trials=searched, jobs=jobs, rows=_ROWS, out=out)
        except ColonnadeError as error:
            print(f"{path.stem}: {error}; {error.hint}", flush=True)
            continue
        found.append(SetResult(path.stem, json.loads((out / "comparison.json").read_text(encoding="utf-8"))))
    return found


def tables(results: list[SetResult]) -> str:
    protocols = [line["protocol"] for line in results[0].record["protocols"]]
    head = ["set", "metric", *protocols, "boosting", "MLP", "majority"]
    lines = [_row(head), _row(["---"] * len(head))]
    for result in results:
        cells = [_pair(result.of(protocol)) for protocol in protocols]
        lines.append(_row([result.name, result.metric, *cells, *_references(result)]))
    gaps = [_row(["protocol", "pairs", "diverged", "cannot", "median gap", "largest gap", "on"]), _row(["---"] * 7)]
    gaps += [_row(_gaps(protocol, results)) for protocol in protocols]
    if not any(result.of(protocol)["gap_test"] is not None for result in results for protocol in protocols):
        gaps = []  # without trials
    reasons = [f"- `{protocol}` on {', '.join(names)}: {why}" for protocol, why, names in _reasons(protocols, results)]
    return "\n\n".join("\n".join(part) for part in (lines, gaps, reasons) if part)


def _pair(line: dict[str, Any]) -> str:
    if line["status"] == "cannot":
        return "n"
    if line["defaults_test"] is None:
        return str(line["status"])
    tuned = "" if line["tuned_test"] is None else f" ({_value(line['tuned_test'])})"
    return _value(line["defaults_test"]) + tuned


def _value(value: float) -> str:
    return f"{100 * value:.1f}" if value > -10 else f"{100 * value:.0f}"


def _references(result: SetResult) -> list[str]:
    values = [line.get("test") for line in result.record["references"]]
    return [_value(value) if isinstance(value, float) else "-" for value in values]


def _gaps(protocol: str, results: list[SetResult]) -> list[str]:
    lines = {result.name: result.of(protocol) for result in results}
    gaps = {name: line["gap_test"] for name, line in lines.items() if line["gap_test"] is not None}
    diverged = sum(line["status"] not in ("ok", "cannot", "waiting") for line in lines.values())
    cannot = sum(line["status"] == "cannot" for line in lines.values())
    if not gaps:
        return [protocol, "0", str(diverged), str(cannot), "-", "-", ""]
    worst = max(gaps, key=lambda name: gaps[name])
    median = statistics.median(gaps.values())
    return [protocol, str(len(gaps)), str(diverged), str(cannot), f"{median:.1f}", f"{gaps[worst]:.1f}", worst]


def _reasons(protocols: Iterable[str], results: list[SetResult]) -> Iterator[tuple[str, str, list[str]]]:
    for protocol in protocols:
        by_reason: dict[str, list[str]] = {}
        for result in results:
            if (line := result.of(protocol))["status"] == "cannot":
                by_reason.setdefault(line["reason"], []).append(result.name)
        for why, names in by_reason.items():
            yield protocol, why, names


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--search-all", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    unsearched = () if options.search_all else _LARGER
    made = tables(compare_all(options.folder, options.trials, options.jobs, unsearched))
    print(made)
    if options.write:
        put_between(_BEGIN, _END, made)


def put_between(begin: str, end: str, made: str) -> None:
    """Replaces the text between two marks in docs/results/defaults.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
