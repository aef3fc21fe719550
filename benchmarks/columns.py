"""What a curious server learns about the parties' columns with secret starts, and with public ones.

    python -m benchmarks.columns FOLDER [NAME ...]

Breast cancer of scikit-learn (569 rows, 409 of them for training; 30 columns, ten at each of three parties),
`split_avg` with SGD at the parties, two epochs of 13 rounds: bottom models with no, one and two hidden layers of 32;
ratios of (width times epochs) to (columns behind a message) of about .25, 1 and 4; embeddings of `party1` in the clear,
or blinded sums of all three. Five attackers see the first exchange, twenty, and all. Runs what is missing in FOLDER,
prints the table of docs/results/attacks.md, and writes colonnade/cli/checks/measured.json, from which
`colonnade check` quotes. Ten minutes on one core.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import console, grid
from colonnade.cli.checks.privacy import PLACE
from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.data.draws import SecretDraws
from colonnade.common.parsing.file import parse
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.columns.attackers import (
    ATTACKERS,
    COMPONENTS,
    PRODUCTS,
    ROWS,
    SEARCH,
    START,
    Knowledge,
    knowledge,
)
from colonnade_lab.attacks.columns.sight import Sight, views
from colonnade_lab.attacks.run import AttackedRun, open_run
from colonnade_lab.attacks.simulated import Deviation

EPOCHS, PARTIES, HIDDEN = 2, 3, 32
WIDTHS = {"clear": {0.25: 1, 1: 5, 4: 20}, "sum": {0.25: 4, 1: 15, 4: 60}}
ROUNDS = {"1": 1, "20": 20, "all": 10**9}
KNOWN, STARTS = 0.01, 40
_DATA = {"source": "sklearn", "name": "breast_cancer"}
_TOWER = '''"""A tower of two hidden layers."""
from math import prod

from torch import nn


def tower(shape, hidden, embedding):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
        nn.Linear(hidden, embedding),
    )
'''


@dataclass(frozen=True)
class Case:
    """A run.

    Args:
        ratio: nominal ratio of width times epochs to columns.
        of: "clear" or "sum".
    """

    layers: int
    ratio: float
    of: str

    @property
    def name(self) -> str:
        return f"{self.layers}-{self.ratio:g}-{self.of}"

    @property
    def width(self) -> int:
        return WIDTHS[self.of][self.ratio]


CASES = {
    case.name: case
    for case in (Case(layers, ratio, of) for of in WIDTHS for layers in (0, 1, 2) for ratio in WIDTHS[of])
}


def main() -> None:
    folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    for name in names or CASES:
        place = Path(folder) / f"{name}.json"
        if not place.exists():
            place.write_text(json.dumps(_measure(CASES[name])) + "\n")
        console.print(f"{name}: done", style="dim")
    found = [json.loads(path.read_text()) for name in CASES if (path := Path(folder) / f"{name}.json").exists()]
    cells = [_rounded(cell) for each in found for cell in each]
    if len(found) == len(CASES):
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        PLACE.write_text(f'{{"cells": [\n{lines}\n]}}\n')
    console.print(grid(_HEADS, map(_line, cells)), markup=False, soft_wrap=True)


def _measure(case: Case) -> list[dict[str, Any]]:
    cells = []
    with _run(case, secret=True) as run, _run(case, secret=False) as other:
        for rounds, most in ROUNDS.items():
            sight, known = _seen(run, most)
            found = {name: asdict(attack(sight, known)) for name, attack in ATTACKERS.items()}
            sight, known = _seen(other, most)
            public = {name: ATTACKERS[name](sight, known).numbers() for name in (SEARCH, START)}
            cells.append({
                "layers": case.layers, "of": case.of, "ratio": case.width * EPOCHS / sight.columns,
                "nominal": case.ratio, "rounds": rounds, "width": case.width, "epochs": EPOCHS,
                "columns": sight.columns, "rows": len(sight.rows), "secret": found, "public": public,
            })  # fmt: skip
    return cells


def _seen(run: AttackedRun, rounds: int) -> tuple[Sight, Knowledge]:
    (sight,) = views(run, run.captured).values()
    sight = sight.first(rounds)
    return sight, knowledge(run, sight, KNOWN, STARTS, 0)


@contextmanager
def _run(case: Case, *, secret: bool) -> Iterator[AttackedRun]:
    with tempfile.TemporaryDirectory(prefix="colonnade-columns-") as name:
        folder = Path(name)
        (folder / "tower.py").write_text(_TOWER)
        config = parse(_tree(case), ())
        sides = {party: _secretly(party) for party in config.federation.names} if secret else {}
        simulate_captured(config, folder, folder, instead=sides)
        yield open_run(folder)


def _secretly(party: str) -> Deviation:
    """An honest party with a secret start, as in a run of processes: `simulate` draws it from the seed."""

    async def side(ctx: ClientContext, link: Link, cfg: Any) -> None:
        ctx.draws = SecretDraws(hashlib.sha256(f"columns/{party}".encode()).digest(), party)
        await PARTICIPATE[cfg.name](ctx, link, cfg)

    return side


def _tree(case: Case) -> dict[str, Any]:
    models: list[dict[str, Any]] = [
        {"name": "linear", "activation": "none"},
        {"name": "mlp", "hidden": HIDDEN, "signed": True},
        {"file": "./tower.py:tower", "hidden": HIDDEN, "embedding": case.width},
    ]
    protocol: dict[str, Any] = {"name": "split_avg", "embedding": case.width}
    tree: dict[str, Any] = {
        "federation": {
            "id": "columns", "protocol": protocol, "parties": PARTIES, "classes": 2, "batch": 32, "epochs": EPOCHS,
            "seed": 0,
        },
        "server": {"labels": _DATA},
        "every_party": {
            "data": {**_DATA, "split": "columns"}, "model": models[case.layers],
            "optimiser": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        },
    }  # fmt: skip
    if case.of == "sum":
        protocol["aggregate"] = "blinded"
        tree["every_party"]["capture"] = {}
    else:
        tree["parties"] = {"party1": {"capture": {}}}
    return tree


def _rounded(value: Any) -> Any:
    """Rounds numbers to four decimals, and keeps those of single columns only where messages were used."""
    if isinstance(value, dict):
        return {
            name: _rounded({key: one for key, one in part.items() if key != "r2"} if name == "without" else part)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


_HEADS = (
    "hidden layers", "numbers a column", "messages", "rounds", "public start: known, searched",
    "secret start: known, searched", "products: up to a rotation, by marginals", "components",
    "1 % known rows (without messages)",
)  # fmt: skip


def _line(cell: dict[str, Any]) -> list[Any]:
    public, secret = cell["public"], cell["secret"]
    products = secret[PRODUCTS]
    return [
        cell["layers"], f"{cell['ratio']:.2g}", cell["of"], cell["rounds"],
        *(", ".join(_cell(found[name]["score"]) for name in (START, SEARCH)) for found in (public, secret)),
        f"{_cell(products['more']['rotated'])}, {_cell(products['score'])}", _cell(secret[COMPONENTS]["score"]),
        f"{_cell(secret[ROWS]['score'])} ({_cell(secret[ROWS]['without'])})",
    ]  # fmt: skip


def _cell(score: Mapping[str, Any]) -> str:
    """Mean R2, and the share of exact rows if there are any."""
    found = f"{score['mean']:.2f}" if score["mean"] > -1 else "below -1"
    return f"{found} ({score['exact']:.0%})" if score["exact"] > 0.005 else found


if __name__ == "__main__":
    main()
