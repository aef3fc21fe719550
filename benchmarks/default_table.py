"""Every protocol on every set with its defaults, beside the best of a search: the tables of docs/results/defaults.md.

    python -m benchmarks.default_table FOLDER [--trials 10] [--jobs 2] [--write]

compares on sets of different kinds, on which the defaults were chosen (docs/defaults.md), one folder a set, and prints
the tables; `--write` puts them into docs/results/defaults.md. Run it again to continue an interrupted comparison. The
five largest sets have no search, unless `--search-all` is given. Sets that $COLONNADE_DATA lacks are left out, with a
message.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from sklearn.datasets import make_classification

import colonnade
from benchmarks.report import grid
from colonnade.common.data.known_sets.catalogue import KNOWN, presence
from colonnade.common.errors import ColonnadeError

Tree = dict[str, Any]
SETS = Path(__file__).with_name("default_sets.yaml")
PAGE = Path(__file__).parent.parent / "docs" / "results" / "defaults.md"
_AGREED = {"protocol": "split", "shuffle": True, "seed": 0}
_ROWS = 5000
_LARGER = ("scene15", "adult", "credit", "mnist", "fashion")


@dataclass(frozen=True)
class Table:
    """A generated table.

    Args:
        x: float32 (rows, columns).
        y: class numbers, int64 (rows,), or numbers, float64 (rows,).
        parties: number of parties that share its columns.
        classes: number of classes; 0 in regression.
    """

    x: np.ndarray
    y: np.ndarray
    parties: int
    classes: int


def many_classes() -> Table:
    draws = np.random.default_rng(1)
    centres = draws.normal(size=(100, 40))
    y = np.repeat(np.arange(100), 50)
    return _shuffled(centres[y] + draws.normal(scale=1.1, size=(5000, 40)), y, draws, parties=4, classes=100)


def few_rows() -> Table:
    x, y = make_classification(150, 24, n_informative=8, n_redundant=4, n_classes=3, class_sep=1.5, random_state=2)
    return Table(x, y, parties=3, classes=3)


def wide() -> Table:
    """A thousand columns, few of which matter, and fewer rows."""
    x, y = make_classification(800, 1000, n_informative=30, n_classes=4, class_sep=3.0, shuffle=True, random_state=3)
    return Table(x, y, parties=4, classes=4)


def imbalanced() -> Table:
    """Four rows in a hundred are of the second class."""
    x, y = make_classification(
        5000, 24, n_informative=10, n_redundant=4, weights=[0.96], flip_y=0.005, class_sep=1.2, random_state=4
    )
    return Table(x, y, parties=2, classes=2)


def skewed() -> Table:
    """Columns with long tails: a wide lognormal, and outliers a thousand times the median."""
    x, y = make_classification(4000, 20, n_informative=10, n_classes=3, class_sep=1.4, random_state=5)
    draws = np.random.default_rng(5)
    x = np.exp(0.9 * x)
    x[draws.random(x.shape) < 0.002] *= 1000
    return Table(x, y, parties=5, classes=3)


def friedman() -> Table:
    """Regression: Friedman's first function of ten columns, five of which matter, not linearly."""
    draws = np.random.default_rng(6)
    x = draws.random((3000, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return Table(x, y + draws.normal(size=3000), parties=2, classes=0)


def prices() -> Table:
    """Regression: a target with a long tail, like prices."""
    draws = np.random.default_rng(7)
    x = draws.normal(size=(4000, 16))
    y = np.exp(0.5 * x[:, 0] + 0.4 * x[:, 5] * x[:, 9] + 0.4 * np.abs(x[:, 12]) + 0.2 * draws.normal(size=4000))
    return Table(x, 1000 * y, parties=4, classes=0)


def _shuffled(x: np.ndarray, y: np.ndarray, draws: np.random.Generator, *, parties: int, classes: int) -> Table:
    order = draws.permutation(len(y))
    return Table(x[order], y[order], parties, classes)


GENERATED = {
    "many_classes": many_classes, "few_rows": few_rows, "wide": wide, "imbalanced": imbalanced, "skewed": skewed,
    "friedman": friedman, "prices": prices,
}  # fmt: skip


def write(folder: Path) -> list[Path]:
    """Writes all sets that can be read here; returns the paths of their configurations."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [_generated(folder, name, make()) for name, make in GENERATED.items()]
    for name, tree in yaml.safe_load(SETS.read_text(encoding="utf-8")).items():
        needs = tree.pop("needs", None)
        if needs and presence(needs, KNOWN[needs]) is None:
            print(f"{name}: left out, because {needs} is not here")
        else:
            paths.append(save(folder, name, tree))
    return paths


def _generated(folder: Path, name: str, table: Table) -> Path:
    rows = np.arange(len(table.y))
    parties = [f"party{number + 1}" for number in range(table.parties)]
    for party, columns in zip(parties, np.array_split(np.arange(table.x.shape[1]), table.parties), strict=True):
        values = {f"x{column}": table.x[:, column].astype(np.float32) for column in columns}
        pq.write_table(pa.table({"id": rows, **values}), folder / f"{name}-{party}.parquet")
    pq.write_table(pa.table({"id": rows, "y": table.y}), folder / f"{name}-labels.parquet")
    agreed: Tree = {"classes": table.classes} if table.classes else {"task": "regression"}
    agreed |= {"epochs": max(10, min(40, 60_000 // len(rows))), "batch": 64 if len(rows) > 1000 else 32}
    return save(folder, name, {
        "federation": {"parties": parties, **agreed},
        "server": {"labels": {"source": "parquet", "path": f"{name}-labels.parquet", "key": "id", "label": "y"}},
        "every_party": {"data": {"source": "parquet", "key": "id"}},
        "parties": {party: {"data": {"path": f"{name}-{party}.parquet"}} for party in parties},
    })  # fmt: skip


def save(folder: Path, name: str, tree: Tree) -> Path:
    tree = {**tree, "federation": {"id": name, **_AGREED, **tree["federation"]}}
    (path := folder / f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


@dataclass(frozen=True)
class SetResult:
    name: str
    record: dict[str, Any]

    def of(self, protocol: str) -> dict[str, Any]:
        found: dict[str, Any] = next(line for line in self.record["protocols"] if line["protocol"] == protocol)
        return found


def compared(path: Path, folder: Path, **how: Any) -> SetResult:
    """Compares on a set, unless a result of it is in the folder."""
    print(f"== {path.stem}", flush=True)
    colonnade.compare(path, out=folder / path.stem, **how)
    return SetResult(path.stem, json.loads((folder / path.stem / "comparison.json").read_text(encoding="utf-8")))


def compare_all(folder: Path, trials: int, jobs: int, unsearched: Iterable[str]) -> Iterator[SetResult]:
    """Compares on every set; those in `unsearched` get no search."""
    for path in write(folder / "sets"):
        try:
            yield compared(path, folder, trials=0 if path.stem in unsearched else trials, jobs=jobs, rows=_ROWS)
        except ColonnadeError as error:
            print(f"{path.stem}: {error}; {error.hint}", flush=True)


def tables(results: list[SetResult]) -> str:
    protocols = [line["protocol"] for line in results[0].record["protocols"]]
    lines = []
    for result in results:
        cells = [_pair(result.of(protocol)) for protocol in protocols]
        references = [value(line.get("test")) for line in result.record["references"]]
        lines.append([result.name, result.record["metric"], *cells, *references])
    parts = [grid(["set", "metric", *protocols, "boosting", "MLP", "majority"], lines)]
    if any(result.of(protocol)["gap_test"] is not None for result in results for protocol in protocols):
        heads = ["protocol", "pairs", "diverged", "cannot", "median gap", "largest gap", "on"]
        parts.append(grid(heads, (_gaps(protocol, results) for protocol in protocols)))
    reasons = [f"- `{protocol}` on {', '.join(names)}: {why}" for protocol, why, names in _reasons(protocols, results)]
    return "\n\n".join([*parts, *(["\n".join(reasons)] if reasons else [])])


def _pair(line: dict[str, Any]) -> str:
    if line["status"] == "cannot":
        return "n"
    if line["defaults_test"] is None:
        return str(line["status"])
    tuned = "" if line["tuned_test"] is None else f" ({value(line['tuned_test'])})"
    return value(line["defaults_test"]) + tuned


def value(number: float | None) -> str:
    """In hundredths."""
    return "-" if number is None else f"{100 * number:.{1 if number > -10 else 0}f}"


def _gaps(protocol: str, results: list[SetResult]) -> list[str]:
    lines = {result.name: result.of(protocol) for result in results}
    gaps = {name: line["gap_test"] for name, line in lines.items() if line["gap_test"] is not None}
    diverged = sum(line["status"] not in ("ok", "cannot", "waiting") for line in lines.values())
    cannot = sum(line["status"] == "cannot" for line in lines.values())
    of_gaps = ["-", "-", ""]
    if gaps:
        worst = max(gaps, key=lambda name: gaps[name])
        of_gaps = [f"{statistics.median(gaps.values()):.1f}", f"{gaps[worst]:.1f}", worst]
    return [protocol, *map(str, (len(gaps), diverged, cannot)), *of_gaps]


def _reasons(protocols: Iterable[str], results: list[SetResult]) -> Iterator[tuple[str, str, list[str]]]:
    for protocol in protocols:
        by_reason: dict[str, list[str]] = {}
        for result in results:
            if (line := result.of(protocol))["status"] == "cannot":
                by_reason.setdefault(line["reason"], []).append(result.name)
        for why, names in by_reason.items():
            yield protocol, why, names


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    return parser


def tell(made: str, mark: str, *, write: bool) -> None:
    """Prints a table, and puts it between two marks in docs/results/defaults.md if it is to be written."""
    print(made)
    if write:
        begin, end, text = f"<!-- {mark} -->", f"<!-- end of {mark} -->", PAGE.read_text(encoding="utf-8")
        before, after = text.split(begin)[0], text.split(end)[1]
        PAGE.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--search-all", action="store_true")
    options = parser.parse_args()
    results = compare_all(options.folder, options.trials, options.jobs, () if options.search_all else _LARGER)
    tell(tables(list(results)), "tables", write=options.write)
