"""`colonnade attack`: attacks by curious members on the messages of a captured run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from colonnade.attacks import inversion, labels, membership, pictures, shadows
from colonnade.attacks.run import AttackedRun, open_run
from colonnade.common.errors import InputError, nearest
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.reports import guarantee
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console


@dataclass(frozen=True)
class Options:
    """Options of an attack.

    Args:
        party: the one whose capture is attacked; "" for all.
        known: share of the training rows whose features the attacker of an inversion has.
        epochs: newest captured epochs that are used; 0 for all, combined.
        seed: of all that an attacker draws.
        shadows: federations that the attacker of a membership simulates.
    """

    party: str = ""
    known: float = 0.2
    epochs: int = 0
    seed: int = 0
    shadows: int = 4


def attack(folder: Path, kind: str, out: Path | None, options: Options) -> None:
    """Writes KIND.json, and pictures if there are any, and prints a table.

    Args:
        folder: of the run.
        kind: one of `KINDS`.
        out: where to; RUN/attacks if left out.

    Raises:
        InputError: the run is none or captured nothing, or an option is wrong.
        EnvironmentFault: nothing can be written there.
    """
    if kind not in KINDS:
        raise InputError(f"--kind {kind}: no such attack{nearest(kind, KINDS)}", hint=f"there are {', '.join(KINDS)}")
    if options.shadows < 1:
        raise InputError(f"--shadows {options.shadows}: expected at least 1", hint="the default is 4")
    if not 0 < options.known < 1:
        raise InputError(f"--known {options.known:g}: expected a share between 0 and 1", hint="the default is 0.2")
    torch.set_num_threads(1)  # small products: threads cost more than they save
    run = open_run(folder.resolve())
    names = run.victims(options.party)
    place = (out or RunFolder(folder).attacks).resolve()
    make_folder(place)
    with console.status(kind):
        found, table = KINDS[kind](run, names, options, place)
    path = place / f"{kind}.json"
    about = {"attack": kind, "run": run.folder.name, "protocol": run.protocol, **found}
    write_text(path, json.dumps(about, indent=2) + "\n")
    console.print(table)
    console.print(f"written: {path}", markup=False, soft_wrap=True)


Found = tuple[dict[str, Any], Table]


def _labels(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    chance = labels.largest_class(run.labels[run.schedule.partition.train])
    table = Table("party", "best method", "labels named", "chance", title="labels, from what came back")
    parties = {}
    for name in names:
        guesses = labels.infer(run, name, options.epochs)
        parties[name] = {"best": vars(guesses[0]) if guesses else None, "all": [vars(guess) for guess in guesses]}
        if guesses:
            best = guesses[0]
            method = f"{best.method} of {best.field}, epochs: {best.epochs}"
            table.add_row(name, method, f"{best.accuracy:.2%}", f"{best.chance:.2%}")
        else:
            table.add_row(name, "nothing came back that names rows", f"{chance:.2%}", f"{chance:.2%}")
    return {"largest_class": chance, "parties": parties}, table


def _inversion(run: AttackedRun, names: tuple[str, ...], options: Options, place: Path) -> Found:
    heads = ("party", "MSE", "mean row's", "SSIM", "mean image's", "readable", "true features", "chance")
    table = Table(*heads, title="inversion, from what was sent")
    parties: dict[str, Any] = {}
    shown: Callable[[float | None], str] = lambda value: "-" if value is None else f"{value:.4f}"  # noqa: E731
    for name in names:
        if inversion.as_images(run.columns(name)[run.schedule.partition.train[:1]]) is not None:
            pictures.pillow()
        found = inversion.invert(run, name, options.known, options.epochs, options.seed)
        if found is None:
            parties[name] = None
            table.add_row(name, "nothing left that has a line for every row", *("-" for _ in heads[2:]))
            continue
        read = found.readable
        numbers = {key: value for key, value in vars(found).items() if key not in {"originals", "made", "readable"}}
        parties[name] = {**numbers, "readable": vars(read)}
        table.add_row(name, *map(shown, (found.mse, found.floor, found.ssim, found.floor_ssim)),
                      *(f"{share:.2%}" for share in (read.made, read.true, read.chance)))  # fmt: skip
        originals, made = inversion.as_images(found.originals), inversion.as_images(found.made)
        if originals is not None and made is not None:
            pictures.draw(place / f"inversion-{name}.png", originals, made)
    return {"known": options.known, "epochs": options.epochs, "seed": options.seed, "parties": parties}, table


def _membership(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    if options.party:
        raise InputError(
            f"--party {options.party}: a membership attack looks at what all parties sent", hint="leave --party away"
        )
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # it brings all protocols

    target, own = membership.candidates(run), shadows.pool(run)
    made = shadows.shadows(run, own, options.shadows, options.seed, simulate_captured)
    known = []
    for number, shadow in enumerate(made, 1):
        console.print(f"shadow {number} of {options.shadows}", style="dim")
        known.append(membership.candidates(shadow))
    found = membership.tell_apart(target, known, membership.delta_of(run.summary), options.seed)
    table = Table(show_header=False, title="membership, from what the server sees")
    table.add_row("rows", f"{found.rows}, half of them members; predictions by the {found.by}")
    table.add_row("shadows", f"{options.shadows} of {own.train} training rows, drawn from {own.source}")
    if found.by == "classifier":
        table.add_row("beware", "from messages of training, whose age tells as well (docs/attacks.md)")
    table.add_row("told right", f"{found.accuracy:.2%} (chance 50 %), AUC {found.auc:.3f}")
    table.add_row("epsilon is at least", f"{found.least_epsilon:.3f} at delta {found.delta:g}")
    table.add_row("epsilon that was claimed", _claimed(run.summary))
    rates = vars(found.counts)
    drawn = {"count": options.shadows, "training_rows": own.train, "from": own.source}
    numbers = {key: value for key, value in vars(found).items() if key != "counts"}
    return {
        **numbers,
        "counts": rates,
        "shadows": drawn,
        "claimed_epsilon": guarantee.by_party(run.summary),
        "claimed_person": run.summary.get("person"),
    }, table


def _claimed(summary: Mapping[str, Any]) -> str:
    known = {name: value for name, value in guarantee.by_party(summary).items() if value is not None}
    if not known:
        return "none: there is no guarantee"
    claims = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
    return f"{claims}, at delta {summary['delta']:g}; {guarantee.describe_person(summary)}"


KINDS: Mapping[str, Callable[[AttackedRun, tuple[str, ...], Options, Path], Found]] = {
    "labels": _labels,
    "inversion": _inversion,
    "membership": _membership,
}
