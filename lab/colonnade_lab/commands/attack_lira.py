"""Table of the membership attack by likelihood ratios."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from colonnade.common.errors import InputError
from colonnade_lab.attacks import lira, membership, shadows
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.commands.attack_options import Found, Options

LIRA = "lira"


def infer(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Likelihood ratios against a few shadows that were not trained on the rows."""
    if options.party:
        raise InputError(
            f"--party {options.party}: a membership attack looks at the joint model", hint="leave --party away"
        )
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # imports all protocols

    own = shadows.pool(run)
    made = shadows.shadows(run, own, options.shadows, options.seed, simulate_captured)
    found = lira.infer_members(run, made, membership.delta_of(run.summary), options.seed)
    table = Table(show_header=False, title="membership, by likelihood ratios")
    table.add_row("rows", f"{found.rows}, half of them members")
    table.add_row("shadows", f"{options.shadows} of {own.train} training rows, drawn from {own.source}")
    areas = {"AUC": found.area, "of confidence alone": found.baseline}
    for head, one in areas.items():
        table.add_row(head, f"{one.auc:.3f} ({one.interval[0]:.3f} to {one.interval[1]:.3f}), chance .5")
    low, high = found.interval
    table.add_row("found at 1 % of alarms", f"{found.hits:.2%} ({low:.1%} to {high:.1%})")
    table.add_row("epsilon is at least", f"{found.least_epsilon:.3f} at delta {found.delta:g}")
    numbers = {**vars(found), "area": vars(found.area), "baseline": vars(found.baseline)}
    drawn = {"count": options.shadows, "training_rows": own.train, "from": own.source}
    return {**numbers, "shadows": drawn, "seed": options.seed}, table
