"""Tables of the attacks by a member that departs from the protocol, in a simulation of the run."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from colonnade.attacks.active import completion
from colonnade.attacks.run import AttackedRun
from colonnade.cli.research.attack_options import Found, Options

COMPLETION = "active-completion"


def complete(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Model completion after training with a malicious optimiser, beside the passive one."""
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # it brings all protocols

    heads = ("party", "labels named", "passive", "raw columns", "largest class", "test accuracy")
    table = Table(*heads, title=f"active model completion, from {options.labels} known labels")
    parties = {}
    for name in names:
        passive, active, test = completion.complete_actively(run, name, options.labels, options.seed, simulate_captured)
        parties[name] = {**vars(active), "passive": vars(passive), "test_accuracy": test}
        table.add_row(name, f"{active.accuracy:.2%} ({active.lowest:.1%} to {active.highest:.1%})",
                      f"{passive.accuracy:.2%}", f"{active.baseline:.2%}", f"{active.chance:.2%}",
                      "-" if test is None else f"{test:.2%}")  # fmt: skip
    return {"seed": options.seed, "parties": parties}, table
