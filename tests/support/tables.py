"""Tables of a few members with partly common rows, each in an order of its own."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

from colonnade.common.conversation.conversation import SERVER

COLUMNS = 3


def write_tables(folder: Path, parties: int = 2, persons: int = 400, share: float = 0.9) -> dict[str, list[str]]:
    """A csv file a member, with a class that is the sign of all columns' sum. Returns the keys by member."""
    draw = random.Random(5)
    rows = {f"Person {n:04}": [draw.gauss(0, 1) for _ in range(COLUMNS * parties)] for n in range(persons)}
    ids = {}
    for number, member in enumerate([SERVER, *(f"party{n}" for n in range(1, parties + 1))]):
        ids[member] = draw.sample(sorted(rows), int(share * persons))
        with (folder / f"{member}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["who", "label"] if member == SERVER else ["who", *(f"c{n}" for n in range(COLUMNS))])
            for key in ids[member]:
                own = rows[key][COLUMNS * (number - 1) : COLUMNS * number]
                lines.writerow([key, int(sum(rows[key]) > 0)] if member == SERVER else [key, *own])
    return ids


def table_tree(parties: int = 2, **federation: Any) -> dict[str, Any]:
    """The configuration for these tables."""
    return {
        "federation": {
            "id": "tables",
            "protocol": {"name": "split", "embedding": 8},
            "parties": parties,
            "classes": 2,
            "epochs": 12,
            "batch": 32,
            "align": "psi",
            **federation,
        },
        "server": {"labels": {"source": "csv", "path": "server.csv", "label": "label", "id": "who"}},
        "parties": {
            f"party{n}": {"data": {"source": "csv", "path": f"party{n}.csv", "id": "who"}}
            for n in range(1, parties + 1)
        },
    }
