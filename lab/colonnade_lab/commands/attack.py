"""The attacks by name, with the table and the file of each. A new one is a function and a line of `KINDS`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from colonnade.common.config.alignment import refuse_aligned
from colonnade.common.errors import InputError, nearest
from colonnade.common.run.activity import activity
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports import guarantee
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console
from colonnade_lab.attacks import (
    backdoor,
    completion,
    features,
    gradients,
    hijack,
    inversion,
    labels,
    membership,
    scores,
    simulated,
    sums,
)
from colonnade_lab.attacks.audit import AuditResult, audit, mechanisms
from colonnade_lab.attacks.bounds import Area, clopper_pearson
from colonnade_lab.attacks.columns.attackers import ATTACKERS, PRODUCTS, knowledge
from colonnade_lab.attacks.columns.sight import views
from colonnade_lab.attacks.inversion import Inversion
from colonnade_lab.attacks.run import SCORES, AttackedRun, largest_class, open_run

_CONFIDENCE = 0.99  # confidence of an audit
_TARGET = 0  # class of a backdoor
_ALL = "all"
_INVERTED = ("MSE", "mean row's", "SSIM", "mean image's", "readable", "true features", "chance")
_NOTHING = "nothing came back that names rows"


@dataclass(frozen=True)
class Options:
    """Options of the command, whose help says what they are."""

    party: str = ""
    known: float = 0.2
    epochs: int = 0
    seed: int = 0
    shadows: int = 4
    canaries: int = 20_000
    labels: int = 40
    attacker: str = _ALL
    starts: int = 256
    rounds: int = 0
    active: bool = False


Found = tuple[dict[str, Any], Grid]
"""Content of the file, and the table on the screen."""
Attack = Callable[[AttackedRun, tuple[str, ...], Options, Path], Found]
"""(run, parties, options, folder of pictures) -> result."""
Row = tuple[str, ...]
OfParty = Callable[[AttackedRun, str, Options, Path], tuple[Any, Iterable[Row]]]
"""(run, party, options, folder of pictures) -> the party's part of the file, and its rows of the table."""


@dataclass(frozen=True)
class Kind:
    """An attack; `captured` if it looks at captured messages, `aligned` if it only needs the common rows' labels."""

    attack: Attack
    captured: bool = True
    aligned: bool = False


@dataclass(frozen=True)
class ByParty:
    """Attacks each party by itself. `title` may name options, and the file repeats those in `said`."""

    title: str
    heads: Row
    of: OfParty
    said: tuple[str, ...] = ("seed",)

    def __call__(self, run: AttackedRun, names: tuple[str, ...], options: Options, place: Path) -> Found:
        table, parties = Grid("party", *self.heads, title=self.title.format(**vars(options))), {}
        for name in names:
            parties[name], rows = self.of(run, name, options, place)
            for row in rows:
                table.add_row(name, *row)
        return {name: vars(options)[name] for name in self.said} | {"parties": parties}, table


def _labels(run: AttackedRun, name: str, options: Options, _place: Path) -> tuple[Any, list[Row]]:
    if run.summed:
        return _summed_labels(run, name, options)
    guesses, by_head = labels.infer(run, name, options.epochs), labels.name_labels(run, name)
    every = [{**vars(guess), "interval": interval(guess.accuracy, guess.rows)} for guess in guesses]
    chance = f"{largest_class(run.labels[run.schedule.partition.train]):.2%}"
    rows: list[Row] = [(_NOTHING, chance, chance)]
    if guesses:
        best = guesses[0]
        method = f"{best.method} of {best.field}, epochs: {best.epochs}"
        rows = [(method, share(best.accuracy, best.rows), f"{best.chance:.2%}")]
    if by_head is not None:
        named = share(by_head.first, by_head.rows)
        rows.append(("the public first head, first batch", named, f"{by_head.chance:.2%}"))
    return {"best": _first(every), "all": every, "public_head": by_head and vars(by_head)}, rows


def _summed_labels(run: AttackedRun, name: str, options: Options) -> tuple[Any, list[Row]]:
    if run.protocol in SCORES:
        read = scores.read_labels(scores.replayed(run), name, options.labels, options.seed)
    else:
        read = sums.read_labels(run, name, options.labels, options.seed)
    rows: list[Row] = [
        (one.what, f"AUC {_area(one.area)}", f"AUC {_area(one.baseline)} without messages") for one in read
    ]
    numbers = [{"what": one.what, **vars(one.area), "baseline": vars(one.baseline)} for one in read]
    return {"known": options.labels, "areas": numbers}, rows or [("none of its columns is split", "-", "-")]


def _inversion(run: AttackedRun, name: str, options: Options, place: Path) -> tuple[Any, list[Row]]:
    found = inversion.invert(run, name, options.known, options.epochs, options.seed)
    if found is None:
        return None, [("nothing left that has a line for every row", *("-" for _ in _INVERTED[1:]))]
    return _inverted(found, place / f"inversion-{name}.png"), [_cells(found)]


def _whitebox(run: AttackedRun, name: str, options: Options, place: Path) -> tuple[Any, list[Row]]:
    found = features.invert_knowing(run, name, options.known, options.seed)
    return _inverted(found, place / f"whitebox-{name}.png"), [_cells(found)]


def _features(run: AttackedRun, name: str, options: Options, place: Path) -> tuple[Any, list[Row]]:
    found = features.infer_features(run, name, options.known, options.seed)
    numbers = {how: _inverted(one, place / f"features-{how}-{name}.png") for how, one in found.items()}
    return numbers, [(how, *_cells(one)) for how, one in found.items()]


def _hijack(run: AttackedRun, name: str, options: Options, place: Path) -> tuple[Any, list[Row]]:
    found = hijack.hijack(run, name, options.known, options.seed)
    numbers = {
        **_inverted(found.hijacked, place / f"hijack-{name}.png"), "honest": _inverted(found.honest),
        "test_accuracy": found.test_accuracy, "honest_accuracy": found.honest_accuracy,
    }  # fmt: skip
    return numbers, [
        ("hijacking", *_cells(found.hijacked), _percent(found.test_accuracy)),
        ("honest", *_cells(found.honest), _percent(found.honest_accuracy)),
    ]


def _completion(run: AttackedRun, name: str, options: Options, _place: Path) -> tuple[Any, list[Row]]:
    found = completion.complete(run, name, options.labels, options.seed)
    return vars(found), [(_named(found), f"{found.baseline:.2%}", f"{found.chance:.2%}")]


def _active_completion(run: AttackedRun, name: str, options: Options, _place: Path) -> tuple[Any, list[Row]]:
    passive, active, test = completion.complete_actively(run, name, options.labels, options.seed)
    shares = (passive.accuracy, active.baseline, active.chance, test)
    numbers = {**vars(active), "passive": vars(passive), "test_accuracy": test}
    return numbers, [(_named(active), *map(_percent, shares))]


def _backdoor(run: AttackedRun, name: str, options: Options, _place: Path) -> tuple[Any, list[Row]]:
    found = backdoor.open_backdoor(run, name, _TARGET, options.labels, options.seed)
    low, high = found.interval
    others = (found.untrained, found.chance, found.accuracy, found.honest)
    return vars(found), [(f"{found.success:.2%} ({low:.1%} to {high:.1%})", *map(_percent, others))]


def _scores(run: AttackedRun, name: str, options: Options, _place: Path) -> tuple[Any, list[Row]]:
    found = gradients.score(run, name, options.labels, options.seed)
    best = {method: next((one for one in found if one.method == method), None) for method in gradients.METHODS}
    rows: list[Row] = [
        (method, f"{one.field}, {one.epochs}", _area(one.area)) for method, one in best.items() if one is not None
    ]
    numbers = {"best": {method: one and _scored(one) for method, one in best.items()}, "all": list(map(_scored, found))}
    return numbers, rows or [(_NOTHING, "-", "-")]


def _batches(run: AttackedRun, name: str, _options: Options, _place: Path) -> tuple[Any, list[Row]]:
    found = gradients.match_batches(run, name)
    every = [{**vars(one), "interval": interval(one.accuracy, one.rows)} for one in found]
    rows: list[Row] = [
        (f"{one.field}, {one.epoch}", share(one.accuracy, one.rows), f"{one.clusters:.2%}", f"{one.chance:.2%}")
        for one in found
    ]
    return {"best": _first(every), "all": every}, rows or [(_NOTHING, "-", "-", "-")]


def _membership(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    _refuse_party(options, "a membership attack looks at what all parties sent")
    target, own = membership.candidates(run), simulated.pool(run)
    made = simulated.shadows(run, own, options.shadows, options.seed)
    known = []
    for number, shadow in enumerate(made, 1):
        console.say(f"shadow {number} of {options.shadows}", "dim")
        known.append(membership.candidates(shadow))
    found = membership.tell_apart(target, known, membership.delta_of(run.summary), options.seed)
    table = Grid(title="membership, from what the server sees")
    table.add_row("rows", f"{found.rows}, half of them members; predictions by the {found.by}")
    drawn = _shadows(own, options, table)
    if found.by == "classifier":
        table.add_row("beware", "from messages of training, whose age tells as well (docs/attackers_membership.md)")
    table.add_row("told right", f"{found.accuracy:.2%} (chance 50 %), AUC {found.auc:.3f}")
    table.add_row("epsilon is at least", f"{found.least_epsilon:.3f} at delta {found.delta:g}")
    return {**asdict(found), "shadows": drawn}, table


def _lira(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    _refuse_party(options, "a membership attack looks at the joint model")
    own = simulated.pool(run)
    made = simulated.shadows(run, own, options.shadows, options.seed)
    found = membership.infer_members(run, made, membership.delta_of(run.summary), options.seed)
    table = Grid(title="membership, by likelihood ratios")
    table.add_row("rows", f"{found.rows}, half of them members")
    drawn = _shadows(own, options, table)
    for head, one in {"AUC": found.area, "of confidence alone": found.baseline}.items():
        table.add_row(head, f"{_area(one)}, chance .5")
    low, high = found.interval
    table.add_row("found at 1 % of alarms", f"{found.hits:.2%} ({low:.1%} to {high:.1%})")
    table.add_row("epsilon is at least", f"{found.least_epsilon:.3f} at delta {found.delta:g}")
    return {**asdict(found), "shadows": drawn, "seed": options.seed}, table


def _audit(run: AttackedRun, _names: tuple[str, ...], options: Options, _place: Path) -> Found:
    _refuse_party(options, "an audit is of mechanisms, not of a party", hint="leave it away")
    known = mechanisms(run)
    if not known:
        raise InputError(
            f"the run in {run.folder} has no mechanism to audit",
            hint="audits are of federation.privacy (but rescale: paper, which claims nothing), server.privacy.answers "
            "and server.privacy.labels",
        )
    table = Grid(title="canary audit")
    found: dict[str, Any] = {}
    for setting, mechanism in known.items():
        result = audit(mechanism, options.canaries, options.seed, _CONFIDENCE)
        found[setting] = {**asdict(result), "refuted": result.refuted}
        _audited(setting, result, table)
    return {"canaries": options.canaries, "seed": options.seed, "mechanisms": found}, table


def _columns(run: AttackedRun, names: tuple[str, ...], options: Options, _place: Path) -> Found:
    """Runs five attackers on every party's columns, or on all together if sums are blinded; or reads sums over bins."""
    if run.protocol in SCORES and not options.active:
        return _scored_columns(run, names, options)
    if run.summed and run.protocol not in SCORES:
        return _summed_columns(run, names, options)
    refuse_aligned(run.config.federation.align, "this attack")
    if options.active:
        raise InputError(
            f"--active: {run.protocol} has no vectors to choose", hint="take a run of secureboost, or hijack"
        )
    wanted = tuple(ATTACKERS) if options.attacker == _ALL else (options.attacker,)
    if not set(wanted) <= set(ATTACKERS):
        raise InputError(
            f"--attacker {options.attacker}: no such attacker{nearest(options.attacker, ATTACKERS)}",
            hint=f"there are {', '.join(ATTACKERS)}, and {_ALL}",
        )
    heads = ("columns of", "attacker", "R2 a column, mean (median)", "rows found", "without messages", "beside")
    table = Grid(*heads, title="columns, from what the server sees of training")
    seen: dict[str, Any] = {}
    for name, whole in views(run, names).items():
        sight = whole.first(options.rounds) if options.rounds else whole
        known = knowledge(run, sight, options.known, options.starts, options.seed)
        found = {attacker: ATTACKERS[attacker](sight, known) for attacker in wanted}
        seen[name] = {
            "parties": [member.name for member in sight.members], "rounds": len(sight.seen), "rows": len(sight.rows),
            "columns": sight.columns, "width": sight.width,
            "attackers": {attacker: asdict(one) for attacker, one in found.items()},
        }  # fmt: skip
        for attacker, one in found.items():
            r2, without = (f"{score.mean:.3f} ({score.median:.3f})" for score in (one.score, one.without))
            exact = f"{one.score.exact:.1%} of {one.score.rows}"
            table.add_row(name, attacker, r2, exact, without, _beside(attacker, dict(one.more)))
    about = {"known": options.known, "starts": options.starts, "seed": options.seed}
    return {**about, "seen": seen}, table


def _summed_columns(run: AttackedRun, names: tuple[str, ...], options: Options) -> Found:
    """Reads every party's bins from exact sums over them, as a curious server or one that chooses its vectors."""
    seen: dict[str, Any] = {}
    if options.active:
        table = Grid("columns of", "rows a vector", "vectors", "rows read", "right", title="columns, by chosen vectors")
        for name in names:
            read = sums.read_actively(run, name)
            seen[name] = vars(read)
            cells = (str(read.a_vector), str(read.vectors), f"{read.read:.1%} of {read.rows}", f"{read.right:.1%}")
            table.add_row(name, *cells)
        return {"active": True, "seen": seen}, table
    heads = ("columns of", "column", "bins", "rows found", "by sums alone", "by sides alone", "without messages")
    table = Grid(*heads, title="bins, from exact sums and the sides of splits")
    for name in names:
        every = sums.read_columns(run, name)
        seen[name] = [vars(one) for one in every]
        for one in every:
            shares = (one.found, one.by_sums, one.by_sides, one.base)
            table.add_row(name, one.name, str(one.bins), *map(_percent, shares))
    return {"active": False, "seen": seen}, table


def _scored_columns(run: AttackedRun, names: tuple[str, ...], options: Options) -> Found:
    """Regresses every party's encoded columns on what the server saw of all rows' scores."""
    heads = ("columns of", "columns", "directions", "R2 in their span", "R2 by known rows", "without messages", "blind")
    table = Grid(*heads, title="columns, from sums of scores (laid open: R2 of .99)")
    seen: dict[str, Any] = {}
    for name in names:
        one = scores.read_columns(scores.replayed(run), name, options.known, options.seed)
        seen[name] = vars(one)
        found, base = (
            f"{mean:.3f} ({count} open)" for mean, count in ((one.found, one.open), (one.base, one.base_open))
        )
        table.add_row(name, str(one.columns), str(one.directions), f"{one.span:.3f}", found, base, str(one.blind))
    return {"known": options.known, "seed": options.seed, "seen": seen}, table


def interval(found: float, trials: int) -> tuple[float, float]:
    """95 % interval of a share of rows."""
    return clopper_pearson(round(found * trials), trials)


def share(found: float, trials: int) -> str:
    low, high = interval(found, trials)
    return f"{found:.2%} ({low:.1%} to {high:.1%})"


def _percent(found: float | None) -> str:
    return "-" if found is None else f"{found:.2%}"


def _area(found: Area) -> str:
    low, high = found.interval
    return f"{found.auc:.3f} ({low:.3f} to {high:.3f})"


def _named(found: completion.Completion) -> str:
    return f"{found.accuracy:.2%} ({found.lowest:.1%} to {found.highest:.1%})"


def _scored(one: gradients.Scored) -> dict[str, Any]:
    numbers = {name: value for name, value in vars(one).items() if name != "area"}
    return {**numbers, **vars(one.area), "baseline": 0.5}


def _inverted(found: Inversion, picture: Path | None = None) -> dict[str, Any]:
    """The file's content; draws images."""
    originals, made = inversion.as_images(found.originals), inversion.as_images(found.made)
    if picture is not None and originals is not None and made is not None:
        inversion.draw_pairs(picture, originals, made)
    kept = {key: value for key, value in vars(found).items() if key not in {"originals", "made", "readable"}}
    read = found.readable
    return {**kept, "readable": {**vars(read), "interval": interval(read.made, found.rows)}}


def _cells(found: Inversion) -> Row:
    read = found.readable
    errors = ("-" if one is None else f"{one:.4f}" for one in (found.mse, found.floor, found.ssim, found.floor_ssim))
    return (*errors, share(read.made, found.rows), f"{read.true:.2%}", f"{read.chance:.2%}")


def _first(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    return found[0] if found else None


def _refuse_party(options: Options, why: str, hint: str = "leave --party away") -> None:
    if options.party:
        raise InputError(f"--party {options.party}: {why}", hint=hint)


def _shadows(own: simulated.Pool, options: Options, table: Grid) -> dict[str, Any]:
    table.add_row("shadows", f"{options.shadows} of {own.train} training rows, drawn from {own.source}")
    return {"count": options.shadows, "training_rows": own.train, "from": own.source}


def _audited(setting: str, result: AuditResult, table: Grid) -> None:
    made, normal = result.guesses, result.least_gaussian
    claim = "nothing" if result.claimed is None else f"{result.claimed:.3f} at delta {result.delta:g}"
    table.add_row(setting, result.mechanism)
    table.add_row("guessed right", f"{made.right} of {made.made}, the surest of {made.canaries} canaries")
    table.add_row("epsilon is at least", f"{result.least:.3f}, of any mechanism with these guesses")
    table.add_row("of Gaussian noise", "-" if normal is None else f"{normal:.3f}, from a guess about every canary")
    table.add_row("claimed", f"{claim}{': REFUTED' if result.refuted else ''}")


def _beside(attacker: str, more: dict[str, Any]) -> str:
    if attacker == PRODUCTS:
        return f"under the best rotation {more['rotated']['mean']:.3f}"
    if "tried" in more:
        said = "the public one" if more["public"] else "one" if more["fits"] else "none"
        return f"{said} of {more['tried']} starts fits, {more['a_second']:.0f} a second"
    if "misfit" in more:
        return f"misfit {more['misfit']:.2g}" if more["fits"] else "the models began otherwise"
    return f"{more['known']} known rows" if "known" in more else ""


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


_KNOWN = ("known", "seed")
KINDS: Mapping[str, Kind] = {
    "labels": Kind(
        ByParty("labels, from what came back", ("best method", "labels named", "chance"), _labels, ()), aligned=True
    ),
    "inversion": Kind(
        ByParty("inversion, from what was sent", _INVERTED, _inversion, ("known", "epochs", "seed"))
    ),
    "membership": Kind(_membership),
    "audit": Kind(_audit, captured=False),
    "completion": Kind(
        ByParty("model completion, from {labels} known labels", ("labels named", "raw columns", "largest class"),
                _completion),
        captured=False,
    ),
    "scores": Kind(
        ByParty("labels, from length and direction (chance .5)", ("method", "field, epochs", "AUC"), _scores,
                ("labels", "seed"))
    ),
    "batches": Kind(
        ByParty("labels, from one batch alone", ("field, epoch", "labels named", "clusters", "chance"), _batches, ())
    ),
    "columns": Kind(_columns, aligned=True),
    "whitebox": Kind(
        ByParty("inversion by the party's own model, from responses after training", _INVERTED, _whitebox, _KNOWN),
        captured=False,
    ),
    "features": Kind(
        ByParty("a party's columns, from what the model predicts", ("attack", *_INVERTED), _features, _KNOWN),
        captured=False,
    ),
    "active-completion": Kind(
        ByParty("active model completion, from {labels} known labels",
                ("labels named", "passive", "raw columns", "largest class", "test accuracy"), _active_completion),
        captured=False,
    ),
    "backdoor": Kind(
        ByParty(f"backdoor to class {_TARGET}, from {{labels}} known rows of it",
                ("predicted as the target", "without training it", "without a trigger", "accuracy", "honest run's"),
                _backdoor),
        captured=False,
    ),
    "hijack": Kind(
        ByParty("feature-space hijack", ("server", *_INVERTED, "test accuracy"), _hijack, _KNOWN), captured=False
    ),
    "lira": Kind(_lira, captured=False),
}  # fmt: skip


def attack(folder: Path, kind: str, out: Path | None, options: Options) -> None:
    """Writes KIND.json, and pictures if there are any, to `out` (default: RUN/attacks), and prints a table."""
    if kind not in KINDS:
        raise InputError(f"--kind {kind}: no such attack{nearest(kind, KINDS)}", hint=f"there are {', '.join(KINDS)}")
    if options.shadows < 1:
        raise InputError(f"--shadows {options.shadows}: expected at least 1", hint="the default is 4")
    if not 0 < options.known < 1:
        raise InputError(f"--known {options.known:g}: expected a share between 0 and 1", hint="the default is 0.2")
    torch.set_num_threads(1)  # small products: threads cost more than they save, here and in BLAS
    chosen = KINDS[kind]
    run = open_run(folder.resolve(), captured=chosen.captured, aligned=chosen.aligned)
    names = run.victims(options.party, captured=chosen.captured and not run.summed)
    place = (out or RunFolder(folder).attacks).resolve()
    make_folder(place)
    with activity(f"attack: {kind}"), threadpool_limits(1):
        found, table = chosen.attack(run, names, options, place)
    path = place / f"{kind}.json"
    about = {
        "attack": kind,
        "run": run.folder.name,
        "protocol": run.protocol,
        "start": run.summary.get("start"),
        **found,
        "claimed_epsilon": guarantee.by_party(run.summary),
        "claimed_person": run.summary.get("person"),
    }
    write_text(path, json.dumps(about, indent=2) + "\n")
    table.note = f"epsilon that was claimed: {claimed(run.summary)}"
    console.show(table)
    console.point("written", path)
