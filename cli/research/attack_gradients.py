"""Tables of the attacks on gradients of a cut layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from colonnade.attacks.areas import Area
from colonnade.attacks.gradients import scoring
from colonnade.attacks.run import AttackedRun
from colonnade.cli.research.attack_options import Found, Options

SCORING = "scores"


def scores(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Length and direction of every row's gradient: areas under the curve."""
    table = Table("party", "method", "field, epochs", "AUC", title="labels, from length and direction (chance .5)")
    parties = {}
    for name in names:
        found = scoring.score(run, name, options.labels, options.seed)
        best = {method: next((one for one in found if one.method == method), None) for method in scoring.METHODS}
        parties[name] = {
            "best": {method: one and _numbers(one) for method, one in best.items()},
            "all": [_numbers(one) for one in found],
        }
        if not found:
            table.add_row(name, "nothing came back that names rows", "-", "-")
        for method, one in best.items():
            if one is not None:
                table.add_row(name, method, f"{one.field}, {one.epochs}", _area(one.area))
    return {"known": options.labels, "seed": options.seed, "parties": parties}, table


def _area(found: Area) -> str:
    low, high = found.interval
    return f"{found.auc:.3f} ({low:.3f} to {high:.3f})"


def _numbers(one: scoring.Scored) -> dict[str, Any]:
    numbers = {name: value for name, value in vars(one).items() if name != "area"}
    return {**numbers, **vars(one.area), "baseline": 0.5}
