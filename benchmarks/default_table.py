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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from sklearn.datasets import make_classification

import colonnade
from colonnade.common.data.known_sets.catalogue import KNOWN, presence
from colonnade.common.errors import ColonnadeError

Tree = dict[str, Any]

_PERSON = ("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE")
_DEFAULT = "default.payment.next.month"
_CARDS = {"source": "csv", "path": "credit-default/UCI_Credit_Card.csv", "key": "ID"}


def _months(name: str) -> list[str]:
    return [f"{name}{month}" for month in range(1, 7)]


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


GENERATED = {
    "many_classes": many_classes, "few_rows": few_rows, "wide": wide, "imbalanced": imbalanced, "skewed": skewed,
    "friedman": friedman, "prices": prices,
}  # fmt: skip

KNOWN_SETS: Mapping[str, tuple[str, Tree]] = {
    "digits": ("", {"parties": 4, "classes": 10, "labels": {"source": "sklearn", "name": "digits"},
        "every": {"source": "sklearn", "name": "digits", "split": "columns"}, "epochs": 12, "batch": 64}),
    "breast_cancer": ("", {"parties": 3, "classes": 2, "labels": {"source": "sklearn", "name": "breast_cancer"},
        "every": {"source": "sklearn", "name": "breast_cancer", "split": "columns"}, "epochs": 20, "batch": 32}),
    "wine": ("", {"parties": 2, "classes": 3, "labels": {"source": "sklearn", "name": "wine"},
        "every": {"source": "sklearn", "name": "wine", "split": "columns"}, "epochs": 30, "batch": 16}),
    "diabetes": ("", {"parties": 2, "task": "regression", "labels": {"source": "sklearn", "name": "diabetes"},
        "every": {"source": "sklearn", "name": "diabetes", "split": "columns"}, "epochs": 30, "batch": 32}),
    "mfeat": ("mfeat", {"parties": 6, "classes": 10, "labels": {"source": "mat", "path": "mfeat/Handwritten.mat"},
        "views": "mfeat/Handwritten.mat", "epochs": 20, "batch": 32}),
    "msrc_v1": ("msrc-v1", {"parties": 5, "classes": 7, "labels": {"source": "mat", "path": "msrc-v1/MSRC-v5.mat"},
        "views": "msrc-v1/MSRC-v5.mat", "epochs": 40, "batch": 32}),
    "scene15": ("scene15", {"parties": 3, "classes": 15, "labels": {"source": "mat", "path": "scene15/Scene_15.mat"},
        "views": "scene15/Scene_15.mat", "epochs": 20, "batch": 64}),
    "adult": ("adult", {"parties": 3, "classes": 2, "labels": {"source": "adult", "folder": "adult"},
        "every": {"source": "adult", "folder": "adult", "split": "columns"}, "epochs": 10, "batch": 128,
        "train": 4000}),
    "credit": ("credit-default", {"parties": 2, "classes": 2, "labels": {**_CARDS, "label": _DEFAULT},
        "each": {"bank": {**_CARDS, "columns": [*_PERSON, *_months("BILL_AMT")]},
                 "shop": {**_CARDS, "columns": [*_months("PAY_AMT"), "PAY_0", *_months("PAY_")[1:]]}},
        "epochs": 10, "batch": 128, "train": 4000}),
    "mnist": ("mnist", {"parties": 2, "classes": 10, "labels": {"source": "idx", "folder": "mnist"},
        "every": {"source": "idx", "folder": "mnist"}, "epochs": 12, "batch": 64, "train": 4000}),
    "fashion": ("fashion-mnist", {"parties": 4, "classes": 10, "labels": {"source": "idx", "folder": "fashion-mnist"},
        "every": {"source": "idx", "folder": "fashion-mnist"}, "epochs": 12, "batch": 64, "train": 4000}),
}  # fmt: skip
"""By name: the known set that it needs, and its configuration."""


def write(folder: Path) -> list[Path]:
    """Writes all sets that can be read here; returns the paths of their configurations."""
    folder.mkdir(parents=True, exist_ok=True)
    trees = {name: _generated(folder, name, make()) for name, make in GENERATED.items()}
    for name, (needs, about) in KNOWN_SETS.items():
        if needs and presence(needs, KNOWN[needs]) is None:
            print(f"{name}: left out, because {needs} is not here")
            continue
        trees[name] = _known(name, about)
    return [_save(folder, name, tree) for name, tree in trees.items()]


def _generated(folder: Path, name: str, table: Table) -> Tree:
    rows = np.arange(len(table.y))
    parties = [f"party{number + 1}" for number in range(table.parties)]
    for party, columns in zip(parties, np.array_split(np.arange(table.x.shape[1]), table.parties), strict=True):
        values = {f"x{column}": table.x[:, column].astype(np.float32) for column in columns}
        pq.write_table(pa.table({"id": rows, **values}), folder / f"{name}-{party}.parquet")
    pq.write_table(pa.table({"id": rows, "y": table.y}), folder / f"{name}-labels.parquet")
    steps = max(10, min(40, 60_000 // len(rows)))
    return {
        "federation": {
            **_agreed(name, parties, 64 if len(rows) > 1000 else 32, steps),
            **({"classes": table.classes} if table.classes else {"task": "regression"}),
        },
        "server": {"labels": {"source": "parquet", "path": f"{name}-labels.parquet", "key": "id", "label": "y"}},
        "every_party": {"data": {"source": "parquet", "key": "id"}},
        "parties": {party: {"data": {"path": f"{name}-{party}.parquet"}} for party in parties},
    }


def _known(name: str, about: Tree) -> Tree:
    federation = _agreed(name, about["parties"], about["batch"], about["epochs"])
    federation |= {key: about[key] for key in ("classes", "task") if key in about}
    if "train" in about:
        federation["rows"] = {"train": about["train"], "validation": 500, "test": 1000}
    tree: Tree = {"federation": federation, "server": {"labels": about["labels"]}}
    if "views" in about:
        parties = {f"view{view + 1}": {"data": {"view": view + 1}} for view in range(about["parties"])}
        federation["parties"] = list(parties)
        return {**tree, "every_party": {"data": {"source": "mat", "path": about["views"]}}, "parties": parties}
    if "every" in about:
        tree["every_party"] = {"data": about["every"]}
    if "each" in about:
        federation["parties"] = list(about["each"])
        tree["parties"] = {party: {"data": data} for party, data in about["each"].items()}
    return tree


def _agreed(name: str, parties: Any, batch: int, epochs: int) -> Tree:
    return {
        "id": name, "protocol": "split", "parties": parties, "epochs": epochs, "batch": batch, "shuffle": True,
        "seed": 0,
    }  # fmt: skip


def _save(folder: Path, name: str, tree: Tree) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def _shuffled(x: np.ndarray, y: np.ndarray, draws: np.random.Generator, *, parties: int, classes: int) -> Table:
    order = draws.permutation(len(y))
    return Table(x[order], y[order], parties, classes)


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
