"""Tables and files of the attacks, one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from colonnade.common.errors import InputError
from colonnade.reports import guarantee
from colonnade.reports.console.screen import out as console
from colonnade_lab.attacks import completion, inversion, labels, membership, pictures, shadows
from colonnade_lab.attacks.audit.canaries import AuditResult, audit
from colonnade_lab.attacks.audit.mechanisms import OF_RUNS
from colonnade_lab.attacks.gradients import first_head
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.commands import attack_active, attack_lira
from colonnade_lab.commands.attack_columns import COLUMNS, recover
from colonnade_lab.commands.attack_features import FEATURES, HEADS, WHITE_BOX, cells, draw, features, numbers, white
from colonnade_lab.commands.attack_gradients import BATCHES, SCORING, batches, scores
from colonnade_lab.commands.attack_options import Found, Options, interval, share

_CONFIDENCE = 0.99  # confidence of an audit


def _labels(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    chance = labels.largest_class(run.labels[run.schedule.partition.train])
    table = Table("party", "best method", "labels named", "chance", title="labels, from what came back")
    parties: dict[str, Any] = {}
    for name in names:
        guesses = labels.infer(run, name, options.epochs)
        every = [{**vars(guess), "interval": interval(guess.accuracy, guess.rows)} for guess in guesses]
        by_head = first_head.name_labels(run, name)
        parties[name] = {"best": every[0] if every else None, "all": every}
        parties[name]["public_head"] = None if by_head is None else vars(by_head)
        if guesses:
            best = guesses[0]
            method = f"{best.method} of {best.field}, epochs: {best.epochs}"
            table.add_row(name, method, share(best.accuracy, best.rows), f"{best.chance:.2%}")
        else:
            table.add_row(name, "nothing came back that names rows", f"{chance:.2%}", f"{chance:.2%}")
        if by_head is not None:
            named = share(by_head.first, by_head.rows)
            table.add_row(name, "the public first head, first batch", named, f"{by_head.chance:.2%}")
    return {"start": run.summary.get("start"), "largest_class": chance, "parties": parties}, table


def _inversion(run: AttackedRun, names: tuple[str, ...], options: Options, place: Path) -> Found:
    table = Table(*HEADS, title="inversion, from what was sent")
    parties: dict[str, Any] = {}
    for name in names:
        if inversion.as_images(run.columns(name)[run.schedule.partition.train[:1]]) is not None:
            pictures.pillow()
        found = inversion.invert(run, name, options.known, options.epochs, options.seed)
        if found is None:
            parties[name] = None
            table.add_row(name, "nothing left that has a line for every row", *("-" for _ in HEADS[2:]))
            continue
        parties[name] = numbers(found)
        table.add_row(name, *cells(found))
        draw(place / f"inversion-{name}.png", found)
    return {"known": options.known, "epochs": options.epochs, "seed": options.seed, "parties": parties}, table


def _membership(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    if options.party:
        raise InputError(
            f"--party {options.party}: a membership attack looks at what all parties sent", hint="leave --party away"
        )
    from colonnade.simulation.folder import simulate_captured  # noqa: PLC0415  # imports all protocols

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
    rates = vars(found.counts)
    drawn = {"count": options.shadows, "training_rows": own.train, "from": own.source}
    numbers = {key: value for key, value in vars(found).items() if key != "counts"}
    return {
        **numbers,
        "counts": rates,
        "shadows": drawn,
    }, table


def claimed(summary: Mapping[str, Any]) -> str:
    known = {name: value for name, value in guarantee.by_party(summary).items() if value is not None}
    said = ["none for rows"]
    if known:
        each = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
        said = [f"{guarantee.describe_person(summary)}; {each}, at delta {summary['delta']:g}"]
    for of in ("label_privacy", "answer_privacy"):
        if (found := summary.get(of)) and found["epsilon"] is not None:
            said.append(f"labels {found['epsilon']:.3f} at delta {found.get('delta', 0):g}")
    return "; ".join(said)


def _audit(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    if options.party:
        raise InputError(f"--party {options.party}: an audit is of mechanisms, not of a party", hint="leave it away")
    known = {setting: made for setting, of in OF_RUNS.items() if (made := of(run)) is not None}
    if not known:
        raise InputError(
            f"the run in {run.folder} has no mechanism to audit",
            hint="audits are of federation.privacy (but rescale: paper, which claims nothing), server.privacy.answers "
            "and server.privacy.labels",
        )
    table = Table(show_header=False, title="canary audit")
    found: dict[str, Any] = {}
    for setting, mechanism in known.items():
        result = audit(mechanism, options.canaries, options.seed, _CONFIDENCE)
        found[setting] = {**vars(result), "guesses": vars(result.guesses), "refuted": result.refuted}
        for head, cell in _audited(setting, result).items():
            table.add_row(head, cell, end_section=head == "claimed")
    return {"canaries": options.canaries, "seed": options.seed, "mechanisms": found}, table


def _completion(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    heads = ("party", "labels named", "raw columns", "largest class")
    table = Table(*heads, title=f"model completion, from {options.labels} known labels")
    parties = {}
    for name in names:
        found = completion.complete(run, name, options.labels, options.seed)
        parties[name] = vars(found)
        table.add_row(name, f"{found.accuracy:.2%} ({found.lowest:.1%} to {found.highest:.1%})",
                      f"{found.baseline:.2%}", f"{found.chance:.2%}")  # fmt: skip
    return {"seed": options.seed, "parties": parties}, table


def _audited(setting: str, result: AuditResult) -> Mapping[str, str]:
    made, normal = result.guesses, result.least_gaussian
    claim = "nothing" if result.claimed is None else f"{result.claimed:.3f} at delta {result.delta:g}"
    return {
        setting: result.mechanism,
        "guessed right": f"{made.right} of {made.made}, the surest of {made.canaries} canaries",
        "epsilon is at least": f"{result.least:.3f}, of any mechanism with these guesses",
        "of Gaussian noise": "-" if normal is None else f"{normal:.3f}, from a guess about every canary",
        "claimed": f"{claim}{': REFUTED' if result.refuted else ''}",
    }


WITHOUT_CAPTURE = {
    "audit", "completion", WHITE_BOX, FEATURES, attack_active.COMPLETION, attack_active.BACKDOOR, attack_active.HIJACK,
    attack_lira.LIRA,
}  # fmt: skip
"""Kinds that look at no captured message."""

OF_ALIGNED = {"labels"}
"""Kinds that need the common rows' labels alone, which the folder of an aligned run has."""

KINDS: Mapping[str, Callable[[AttackedRun, tuple[str, ...], Options, Path], Found]] = {
    "labels": _labels,
    "inversion": _inversion,
    "membership": _membership,
    "audit": _audit,
    "completion": _completion,
    SCORING: scores,
    BATCHES: batches,
    COLUMNS: recover,
    WHITE_BOX: white,
    FEATURES: features,
    attack_active.COMPLETION: attack_active.complete,
    attack_active.BACKDOOR: attack_active.open_backdoor,
    attack_active.HIJACK: attack_active.hijack_features,
    attack_lira.LIRA: attack_lira.infer,
}
