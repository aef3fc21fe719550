"""Tables with keys for a demo, in which members hold some rows each and find the common ones."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import yaml
from sklearn.datasets import load_digits

ROWS = 600
LACKING = 40  # every member lacks one row of so many, each another one


def aligned(demo: Path, folder: Path) -> Path:
    """Writes a demo's tables, and its configuration with them. Returns the configuration.

    Args:
        demo: a configuration whose parties hold the digits' columns.
        folder: for the files.
    """
    tree = yaml.safe_load(demo.read_text(encoding="utf-8"))
    pixels, classes = load_digits(return_X_y=True)
    count = tree["federation"]["parties"]
    names = [f"party{number}" for number in range(1, count + 1)] if isinstance(count, int) else list(count)
    tree["federation"] |= {"align": "psi", "keys": {"seeded": True}}
    tree["server"]["labels"] = _written(folder / "labels.csv", 0, {"digit": classes}) | {"label": "digit"}
    parties: dict[str, Any] = tree.setdefault("parties", {})
    for number, name in enumerate(names):
        columns = {f"p{column}": pixels[:, column] for column in range(64) if column % len(names) == number}
        parties[name] = {**(parties.get(name) or {}), "data": _written(folder / f"{name}.csv", number + 1, columns)}
    tree.get("every_party", {}).pop("data", None)
    file = folder / "aligned.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return file


def _written(path: Path, member: int, columns: dict[str, Any]) -> dict[str, Any]:
    rows = [row for row in range(ROWS) if row % LACKING != member % LACKING]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        writer.writerows([f"person {row}", *(values[row] for values in columns.values())] for row in rows)
    return {"source": "csv", "path": path.name, "key": "id"}
