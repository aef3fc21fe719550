"""Tables of the attacks on cut-layer gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from colonnade_lab.attacks.bounds import Area
from colonnade_lab.attacks.gradients import matching, scoring
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.commands.attack_options import Found, Options, interval, share

SCORING, BATCHES = "scores", "batches"


def scores(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Norm and direction of every row's gradient: areas under the curve."""
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


def batches(run: AttackedRun, names: tuple[str, ...], _options: Options, _place: Path) -> Found:
    """Gradient matching of single batches, compared with clusters of the same batch."""
    heads = ("party", "field, epoch", "labels named", "clusters", "chance")
    table = Table(*heads, title="labels, from one batch alone")
    parties = {}
    for name in names:
        found = matching.match_batches(run, name)
        every = [{**vars(one), "interval": interval(one.accuracy, one.rows)} for one in found]
        parties[name] = {"best": every[0] if every else None, "all": every}
        if not found:
            table.add_row(name, "nothing came back that names rows", "-", "-", "-")
        for one in found:
            right = share(one.accuracy, one.rows)
            table.add_row(name, f"{one.field}, {one.epoch}", right, f"{one.clusters:.2%}", f"{one.chance:.2%}")
    return {"parties": parties}, table


def _area(found: Area) -> str:
    low, high = found.interval
    return f"{found.auc:.3f} ({low:.3f} to {high:.3f})"


def _numbers(one: scoring.Scored) -> dict[str, Any]:
    numbers = {name: value for name, value in vars(one).items() if name != "area"}
    return {**numbers, **vars(one.area), "baseline": 0.5}
