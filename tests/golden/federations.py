"""Writes the federations of federations.yaml with their tables: scikit-learn's digits, their pixels in turn."""

from __future__ import annotations

import copy
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sklearn.datasets import load_digits

ROWS = 200
LACKING = 25  # of tables with keys, each lacks one row in 25, each another one
PREDICTED = ("person 7", "person 90", "person 31", "nobody")

_KNOWN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PROTOCOLS = tuple(_KNOWN["protocols"])


def write(protocol: str, folder: Path, *, aligned: bool) -> None:
    """Writes federation.yaml, its tables, and ids.csv for a prediction.

    Args:
        folder: for the files; it exists.
        aligned: members find their common rows by keys; else all have the same rows in the same order.
    """
    tree = _merged(copy.deepcopy(_KNOWN["base"]), _KNOWN["protocols"][protocol])
    tree["federation"]["protocol"] = {"name": protocol, **tree["federation"].get("protocol", {})}
    names = tree["federation"]["parties"]
    tree["parties"] = {name: {"data": {"path": f"{name}.csv"}} for name in names}
    if aligned:
        tree = _merged(tree, _KNOWN["aligned"])
    (folder / "federation.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    pixels, digits = load_digits(return_X_y=True)
    members = ["server", *names]
    inner = [pixel for pixel in range(pixels.shape[1]) if 2 <= pixel % 8 <= 6]  # 40, of which every member has as many
    for number, name in enumerate(members):
        own = inner[number :: len(members)]
        columns = [f"pixel {pixel}" for pixel in own]
        _write_table(folder / f"{name}.csv", columns, pixels[:, own], number if aligned else None)
    labels = np.stack([digits, digits % 2 == 0], axis=1)
    _write_table(folder / "labels.csv", ["digit", "even"], labels, 0 if aligned else None)  # the server's rows
    _write_rows(folder / "ids.csv", [["id"], *([row] for row in PREDICTED)])


def _write_table(path: Path, columns: list[str], values: Any, lacking: int | None) -> None:
    held = [row for row in range(ROWS) if row % LACKING != lacking]
    _write_rows(path, [["id", *columns], *([f"person {row}", *map(int, values[row])] for row in held)])


def _write_rows(path: Path, rows: Iterable[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Sections of `above` over those of `below`; null takes a key away."""
    made = dict(below)
    for key, value in above.items():
        before = below.get(key)
        made[key] = _merged(before if isinstance(before, dict) else {}, value) if isinstance(value, dict) else value
    return {key: value for key, value in made.items() if value is not None}
