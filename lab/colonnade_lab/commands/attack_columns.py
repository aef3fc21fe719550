"""Table of a curious server's attacks on columns, from what it sees of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from colonnade.common.errors import InputError, nearest
from colonnade_lab.attacks.columns.attackers import ATTACKERS, ColumnScore, knowledge
from colonnade_lab.attacks.columns.names import PRODUCTS
from colonnade_lab.attacks.columns.sight import Sight, views
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.commands.attack_options import Found, Options

COLUMNS, ALL = "columns", "all"


def recover(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Runs five attackers on every party's columns, or on all together if sums are blinded."""
    wanted = tuple(ATTACKERS) if options.attacker == ALL else (options.attacker,)
    if not set(wanted) <= set(ATTACKERS):
        raise InputError(
            f"--attacker {options.attacker}: no such attacker{nearest(options.attacker, ATTACKERS)}",
            hint=f"there are {', '.join(ATTACKERS)}, and {ALL}",
        )
    heads = ("columns of", "attacker", "R2 a column, mean (median)", "rows found", "without messages", "beside")
    table = Table(*heads, title="columns, from what the server sees of training")
    seen: dict[str, Any] = {}
    for name, whole in views(run, names).items():
        sight = whole.first(options.rounds) if options.rounds else whole
        known = knowledge(run, sight, options.known, options.starts, options.seed)
        found = {attacker: ATTACKERS[attacker](sight, known) for attacker in wanted}
        seen[name] = {**_about(sight), "attackers": {attacker: one.numbers() for attacker, one in found.items()}}
        for attacker, one in found.items():
            table.add_row(name, attacker, _r2(one.score), f"{one.score.exact:.1%} of {one.score.rows}",
                          _r2(one.without), _beside(attacker, dict(one.more)))  # fmt: skip
    about = {"known": options.known, "starts": options.starts, "seed": options.seed, "start": run.summary.get("start")}
    return {**about, "seen": seen}, table


def _about(sight: Sight) -> dict[str, Any]:
    return {
        "parties": [member.name for member in sight.members], "rounds": len(sight.seen), "rows": len(sight.rows),
        "columns": sight.columns, "width": sight.width,
    }  # fmt: skip


def _r2(score: ColumnScore) -> str:
    return f"{score.mean:.3f} ({score.median:.3f})"


def _beside(attacker: str, more: dict[str, Any]) -> str:
    if attacker == PRODUCTS:
        return f"under the best rotation {more['rotated']['mean']:.3f}"
    if "tried" in more:
        said = "the public one" if more["public"] else "one" if more["fits"] else "none"
        return f"{said} of {more['tried']} starts fits, {more['a_second']:.0f} a second"
    if "misfit" in more:
        return f"misfit {more['misfit']:.2g}" if more["fits"] else "the models began otherwise"
    return f"{more['known']} known rows" if "known" in more else ""
