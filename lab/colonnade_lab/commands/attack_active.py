"""Tables of the attacks by a member that departs from the protocol, in a simulation of the run."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from colonnade_lab.attacks.active import backdoor, completion, hijack
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.commands.attack_features import HEADS, cells, draw, numbers
from colonnade_lab.commands.attack_options import Found, Options

COMPLETION, BACKDOOR, HIJACK = "active-completion", "backdoor", "hijack"
_TARGET = 0


def complete(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Model completion after training with a malicious optimiser, compared with the passive one."""
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # imports all protocols

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


def open_backdoor(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """A trigger in place of a party's embeddings."""
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # imports all protocols

    heads = ("party", "predicted as the target", "without training it", "without a trigger", "accuracy", "honest run's")
    table = Table(*heads, title=f"backdoor to class {_TARGET}, from {options.labels} known rows of it")
    parties = {}
    for name in names:
        found = backdoor.open_backdoor(run, name, _TARGET, options.labels, options.seed, simulate=simulate_captured)
        parties[name] = vars(found)
        low, high = found.interval
        others = (found.untrained, found.chance, found.accuracy, found.honest)
        table.add_row(name, f"{found.success:.2%} ({low:.1%} to {high:.1%})", *(f"{one:.2%}" for one in others))
    return {"seed": options.seed, "parties": parties}, table


def hijack_features(run: AttackedRun, names: tuple[str, ...], options: Options, place: Path) -> Found:
    """Inversion of what a party sends after training by a server that steered it, compared with an honest server."""
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # imports all protocols

    table = Table(HEADS[0], "server", *HEADS[1:], "test accuracy", title="feature-space hijack")
    parties = {}
    for name in names:
        found = hijack.hijack(run, name, options.known, options.seed, simulate_captured)
        parties[name] = {
            **numbers(found.hijacked), "honest": numbers(found.honest),
            "test_accuracy": found.test_accuracy, "honest_accuracy": found.honest_accuracy,
        }  # fmt: skip
        for how, one, test in (
            ("hijacking", found.hijacked, found.test_accuracy),
            ("honest", found.honest, found.honest_accuracy),
        ):
            table.add_row(name, how, *cells(one), "-" if test is None else f"{test:.2%}")
        draw(place / f"{HIJACK}-{name}.png", found.hijacked)
    return {"known": options.known, "seed": options.seed, "parties": parties}, table
