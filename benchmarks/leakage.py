"""Leakage to curious members, protocol by protocol, with each defence off and on: one table.

    python -m benchmarks.leakage FOLDER [NAME ...]

Runs `experiments/leakage/mnist.yaml` under every protocol, attacks the captures (docs/results/attacks.md), labels and
inversion with one epoch and with all, and prints two tables in Markdown; the second has the slower attacks, on
`left`, for fewer runs. Existing runs and attacks in FOLDER are reused. There is one seed: differences of a few per
cent mean nothing. For two parties shares are averaged.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import console
from colonnade.reports import guarantee

HEADS = (
    "protocol, defence", "epsilon of a party", "AUC of norm, direction", "one batch (clusters; chance)",
    "completion, active (raw columns)", "white box", "from predictions: generator, regression", "backdoor (untrained)",
    "hijack; honest server",
)  # fmt: skip

Numbers = Mapping[str, Any]


def deeper_table(places: Mapping[str, Path]) -> str:
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    return "\n".join([*lines, *(_deeper_line(name, place) for name, place in places.items())])


def _deeper_line(name: str, place: Path) -> str:
    cells = [name, _epsilon(place)]
    for kinds, cell in CELLS:
        found = [_party(place / "attacks" / f"{kind}.json") for kind in kinds]
        cells.append(cell(*found) if all(found) else "-")
    return f"| {' | '.join(cells)} |"


def _scores(found: Numbers) -> str:
    return ", ".join(_number(found["best"][method]["auc"], found["best"][method]["interval"])
                     for method in ("norm", "direction") if found["best"][method]) or "-"  # fmt: skip


def _batches(found: Numbers) -> str:
    if not (best := found["best"]):
        return "-"
    return f"{_interval_share(best['accuracy'], best['interval'])} ({best['clusters']:.0%}; {best['chance']:.0%})"


def _completion(passive: Numbers, active: Numbers) -> str:
    shares = (f"{one['accuracy']:.0%} [{one['lowest']:.0%}, {one['highest']:.0%}]" for one in (passive, active))
    return f"{', '.join(shares)} ({passive['baseline']:.0%})"


def _read(found: Numbers) -> str:
    """The error relative to that of the mean row, and the share of readable reconstructions."""
    read = found["readable"]
    return f"{found['mse'] / found['floor']:.2f}, {_interval_share(read['made'], read['interval'])}"


def _features(found: Numbers) -> str:
    return "; ".join(_read(found[how]) for how in ("equations", "generator", "regression") if how in found)


def _hijack(found: Numbers) -> str:
    return f"{_read(found)}; {_read(found['honest'])}"


def _backdoor(found: Numbers) -> str:
    return f"{_interval_share(found['success'], found['interval'])} ({found['untrained']:.0%})"


CELLS: tuple[tuple[tuple[str, ...], Callable[..., str]], ...] = (
    (("scores",), _scores),
    (("batches",), _batches),
    (("completion", "active-completion"), _completion),
    (("whitebox",), _read),
    (("features",), _features),
    (("backdoor",), _backdoor),
    (("hijack",), _hijack),
)
"""Kinds of attacks, and the function that makes a cell from their numbers."""


def _interval_share(share: float, interval: tuple[float, float]) -> str:
    return f"{share:.0%} [{interval[0]:.0%}, {interval[1]:.0%}]"


def _number(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def _party(path: Path) -> Numbers | None:
    """The numbers of the attacked party; None if the attack does not fit the run."""
    return next(iter(json.loads(path.read_text(encoding="utf-8"))["parties"].values())) if path.exists() else None


def _epsilon(place: Path) -> str:
    summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    known = [value for value in guarantee.by_party(summary).values() if value is not None]
    own = [f"{max(known):.3g}"] if known else ["none"]
    for of in ("label_privacy", "answer_privacy"):
        if (found := summary.get(of)) and found["epsilon"] is not None:
            own.append(f"labels {found['epsilon']:.3g}")
    return "; ".join(own)


FILE = Path(__file__).parents[1] / "experiments" / "leakage" / "mnist.yaml"
COMMAND = (sys.executable, "-m", "colonnade")
ATTACKS = {
    "labels": ("--kind", "labels"),
    "inversion": ("--kind", "inversion"),
    "labels-once": ("--kind", "labels", "--epochs", "1"),
    "inversion-once": ("--kind", "inversion", "--epochs", "1"),
    "membership": ("--kind", "membership"),
}

_LEFT = ("--party", "left")
DEEPER = {
    "scores": ("--kind", "scores", *_LEFT),
    "batches": ("--kind", "batches", *_LEFT),
    "completion": ("--kind", "completion", *_LEFT),
    "active-completion": ("--kind", "active-completion", *_LEFT),
    "whitebox": ("--kind", "whitebox", *_LEFT),
    "features": ("--kind", "features", *_LEFT),
    "backdoor": ("--kind", "backdoor", "--labels", "20", *_LEFT),
    "hijack": ("--kind", "hijack", *_LEFT),
}
"""Attacks of the second table."""
DEEP = (
    "split",
    "split, labels noised once",
    "vfl_afe, positive sphere",
    "vafl, answers noised",
    "vimadmm",
    "fdml, blinded",
)
"""Runs of the second table, by their names in `CASES`."""

_ROWS = "federation.privacy={mechanism: adaptive, clip: 1, release: %s, noise_multiplier: %s, delta: 0.01}"
_BALL, _POSITIVE = _ROWS % ("ball", 0.5), _ROWS % ("positive_sphere", 0.5)
_ANSWERS = "server.privacy.answers={clip: 0.1, head_clip: 1, noise_multiplier: 2, delta: 1e-4}"
_LABELS = "server.privacy.labels={epsilon: 4}"
_ADAM = ("every_party.optimiser={name: adam, lr: 0.001}", "server.optimiser={name: adam, lr: 0.001}")
_LOCAL = ("every_party.optimiser={name: sgd, lr: 0.05, momentum: 0.9}", "server.optimiser={name: sgd, lr: 0.05}")
_SLOW = ("every_party.optimiser={name: sgd, lr: 0.01, momentum: 0.9}", "server.optimiser={name: sgd, lr: 0.01}")
_PAIR = "every_party.policy={min_parties: 2}"


def _named(name: str, more: str = "embedding: 64") -> str:
    return f"federation.protocol={{name: {name}, {more}}}"


CASES: dict[str, tuple[str, ...]] = {
    "split": (),
    "split, gaussian C 100 sigma .01": ("federation.privacy={clip: 100, noise_multiplier: 0.01, delta: 1e-5}",),
    "split, labels noised once": (_LABELS,),
    "split, four bits": ("federation.compress={up: 4, down: 4}",),
    "vfl_afe, ball": (_named("vfl_afe"), _BALL),
    "vfl_afe, positive sphere": (_named("vfl_afe"), _POSITIVE),
    "vfl_afe, positive sphere, steps": (_named("vfl_afe"), _POSITIVE.replace("}", ", steps: {clip: 1, cost: 0.1}}")),
    "split_avg": (_named("split_avg"),),
    "fedbcd": (_named("fedbcd", "embedding: 64, tau: 3"), *_LOCAL),
    "vafl": (_named("vafl"),),
    "vafl, answers noised": (_named("vafl"), _ANSWERS),
    "czofo, of a batch": (_named("czofo", "embedding: 64, directions: 100, delta: batch, arrivals: false"), *_ADAM),
    "czofo, of a row": (_named("czofo", "embedding: 64, directions: 16, delta: row, arrivals: false"), *_ADAM),
    "czofo, of a row, answers noised": (
        _named("czofo", "embedding: 64, directions: 16, delta: row, arrivals: false"), _ANSWERS, *_ADAM
    ),
    "czofo, of a row, positive sphere": (
        _named("czofo", "embedding: 64, directions: 16, delta: row, arrivals: false"), _POSITIVE, *_ADAM
    ),
    "syn_zoo_vfl": (_named("syn_zoo_vfl"), *_ADAM),
    "vimadmm": (_named("vimadmm", "embedding: 64, tau: 10"), *_LOCAL),
    "vimadmm, positive sphere": (_named("vimadmm", "embedding: 64, tau: 10"), _POSITIVE, *_LOCAL),
    "vimadmm_j": (_named("vimadmm_j", "embedding: 64, tau: 10"), *_SLOW),
    "fdml": (_named("fdml"),),
    "fdml, blinded": (_named("fdml", "embedding: 64, aggregate: blinded"), "federation.blinding={least: 2}", _PAIR),
    "c_vfl": (_named("c_vfl", "embedding: 64, local_steps: 3"), *_LOCAL),
}  # fmt: skip


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names or CASES:
        _run(Path(folder), name)
    console.print(_table(Path(folder), names or list(CASES)), markup=False, soft_wrap=True)
    if deep := [name for name in names or DEEP if name in DEEP]:
        console.print(deeper_table({name: _place(Path(folder), name) for name in deep}), markup=False,
                      soft_wrap=True)  # fmt: skip


def _run(folder: Path, name: str) -> None:
    place = _place(folder, name)
    if not (place / "summary.json").exists():
        sets = [word for value in CASES[name] for word in ("--set", value)]
        _call("simulate", FILE, "--out", place, *sets)
    for attack, options in {**ATTACKS, **(DEEPER if name in DEEP else {})}.items():
        if not _kept(place, attack).exists():
            _call("attack", place, *options, "--out", _kept(place, attack).parent)
    console.print(f"{name}: done", style="dim")


def _call(*words: object) -> None:
    ended = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
    if ended.returncode:
        console.print(f"{words[0]} {words[1]}: {ended.stderr.strip().splitlines()[:2]}", style="red")


def _table(folder: Path, names: list[str]) -> str:
    lines = [
        "| protocol, defence | test accuracy | epsilon of a party | labels named: one epoch, all | MSE over the mean "
        "image's | readable | members told | epsilon at least |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(_place(folder, name), name) for name in names)])


def _line(place: Path, name: str) -> str:
    summary = _json(place / "summary.json")
    found = {attack: _json(_kept(place, attack)) for attack in ATTACKS}
    named, made, read = [], [], []
    for how in ("-once", ""):
        best = [party["best"] for party in found[f"labels{how}"].get("parties", {}).values()]
        named.append(_share([each["accuracy"] for each in best if each]))
        images = [party for party in found[f"inversion{how}"].get("parties", {}).values() if party]
        made.append(f"{_mean([each['mse'] / each['floor'] for each in images]):.2f}" if images else "-")
        read.append(_share([each["readable"]["made"] for each in images]))
    membership = found["membership"]
    cells = [
        _share([summary.get("metrics", {}).get("test_accuracy")]),
        _claimed(summary),
        *(", ".join(dict.fromkeys(pair)) for pair in (named, made, read)),
        _share([membership.get("accuracy")]),
        f"{membership['least_epsilon']:.1f}" if membership else "-",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _claimed(summary: dict[str, Any]) -> str:
    known = [value for value in guarantee.by_party(summary).values() if value is not None]
    return f"{max(known):.3g}" if known else "none"


def _kept(place: Path, attack: str) -> Path:
    kind = attack.removesuffix("-once")
    return place / ("attacks" if kind == attack else "attacks-once") / f"{kind}.json"


def _share(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{_mean(known):.1%}" if known else "-"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _place(folder: Path, name: str) -> Path:
    return folder / name.replace(", ", "-").replace(" ", "_")


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    main()
