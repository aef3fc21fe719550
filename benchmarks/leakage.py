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

from benchmarks.report import console, grid
from colonnade.reports import guarantee

FILE = Path(__file__).parents[1] / "experiments" / "leakage" / "mnist.yaml"
Numbers = Mapping[str, Any]

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

ATTACKS = {
    "labels": (), "inversion": (), "membership": (), "labels-once": ("--epochs", "1"),
    "inversion-once": ("--epochs", "1"),
}  # fmt: skip
DEEPER = ("scores", "batches", "completion", "active-completion", "whitebox", "features", "backdoor", "hijack")
"""Attacks of the second table, on `left`."""
DEEP = (
    "split", "split, labels noised once", "vfl_afe, positive sphere", "vafl, answers noised", "vimadmm",
    "fdml, blinded",
)  # fmt: skip
"""Runs of the second table, by their names in `CASES`."""


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        _run(folder / _file(name), name)
    first = [_line(folder / _file(name), name) for name in names]
    second = [_deeper_line(folder / _file(name), name) for name in names if name in DEEP]
    for heads, lines in ((HEADS, first), (DEEPER_HEADS, second)):
        if lines:
            console.print(grid(heads, lines), markup=False, soft_wrap=True)


def _file(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "_")


def _run(place: Path, name: str) -> None:
    if not (place / "summary.json").exists():
        sets = [word for value in CASES[name] for word in ("--set", value)]
        _call("simulate", FILE, "--out", place, *sets)
    wanted: dict[str, tuple[str, ...]] = dict(ATTACKS)
    if name in DEEP:
        wanted |= dict.fromkeys(DEEPER, ("--party", "left")) | {"backdoor": ("--labels", "20", "--party", "left")}
    for attack, options in wanted.items():
        if not (kept := _kept(place, attack)).exists():
            _call("attack", place, "--kind", kept.stem, *options, "--out", kept.parent)
    console.print(f"{name}: done", style="dim")


def _call(*words: object) -> None:
    command = [sys.executable, "-m", "colonnade", *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        console.print(f"{words[0]} {words[1]}: {ended.stderr.strip().splitlines()[:2]}", style="red")


def _kept(place: Path, attack: str) -> Path:
    kind = attack.removesuffix("-once")
    return place / ("attacks" if kind == attack else "attacks-once") / f"{kind}.json"


def _json(path: Path) -> Numbers:
    found: Numbers = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


HEADS = [
    "protocol, defence", "test accuracy", "epsilon of a party", "labels named: one epoch, all",
    "MSE over the mean image's", "readable", "members told", "epsilon at least",
]  # fmt: skip


def _line(place: Path, name: str) -> list[str]:
    summary = _json(place / "summary.json")
    found = {attack: _json(_kept(place, attack)) for attack in ATTACKS}
    named, made, read = [], [], []
    for how in ("-once", ""):
        best = [party["best"] for party in found[f"labels{how}"].get("parties", {}).values()]
        named.append(_share([each["accuracy"] for each in best if each]))
        images = [party for party in found[f"inversion{how}"].get("parties", {}).values() if party]
        made.append(f"{_mean([each['mse'] / each['floor'] for each in images]):.2f}" if images else "-")
        read.append(_share([each["readable"]["made"] for each in images]))
    membership, epsilon = found["membership"], _epsilon(summary)
    return [
        name, _share([summary.get("metrics", {}).get("test_accuracy")]), epsilon,
        *(", ".join(dict.fromkeys(pair)) for pair in (named, made, read)),
        _share([membership.get("accuracy")]), f"{membership['least_epsilon']:.1f}" if membership else "-",
    ]  # fmt: skip


def _epsilon(summary: Numbers) -> str:
    known = [value for value in guarantee.by_party(summary).values() if value is not None]
    return f"{max(known):.3g}" if known else "none"


def _share(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{_mean(known):.1%}" if known else "-"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


DEEPER_HEADS = [
    "protocol, defence", "epsilon of a party", "AUC of norm, direction", "one batch (clusters; chance)",
    "completion, active (raw columns)", "white box", "from predictions: generator, regression", "backdoor (untrained)",
    "hijack; honest server",
]  # fmt: skip


def _deeper_line(place: Path, name: str) -> list[str]:
    summary = _json(place / "summary.json")
    epsilons = [_epsilon(summary)]
    for of in ("label_privacy", "answer_privacy"):
        if (found := summary.get(of)) and found["epsilon"] is not None:
            epsilons.append(f"labels {found['epsilon']:.3g}")
    cells = [name, "; ".join(epsilons)]
    for kinds, cell in CELLS:  # the numbers of the attacked party; none if the attack does not fit the run
        of_kinds = [next(iter(_json(_kept(place, kind)).get("parties", {}).values()), None) for kind in kinds]
        cells.append(cell(*of_kinds) if all(of_kinds) else "-")
    return cells


def _within(share: float, interval: tuple[float, float]) -> str:
    return f"{share:.0%} [{interval[0]:.0%}, {interval[1]:.0%}]"


def _scores(found: Numbers) -> str:
    best = [found["best"][method] for method in ("norm", "direction") if found["best"][method]]
    told = (f"{one['auc']:.2f} [{one['interval'][0]:.2f}, {one['interval'][1]:.2f}]" for one in best)
    return ", ".join(told) or "-"


def _batches(found: Numbers) -> str:
    if not (best := found["best"]):
        return "-"
    return f"{_within(best['accuracy'], best['interval'])} ({best['clusters']:.0%}; {best['chance']:.0%})"


def _completion(passive: Numbers, active: Numbers) -> str:
    shares = (_within(one["accuracy"], (one["lowest"], one["highest"])) for one in (passive, active))
    return f"{', '.join(shares)} ({passive['baseline']:.0%})"


def _read(found: Numbers) -> str:
    """The error relative to that of the mean row, and the share of readable reconstructions."""
    read = found["readable"]
    return f"{found['mse'] / found['floor']:.2f}, {_within(read['made'], read['interval'])}"


CELLS: tuple[tuple[tuple[str, ...], Callable[..., str]], ...] = (
    (("scores",), _scores),
    (("batches",), _batches),
    (("completion", "active-completion"), _completion),
    (("whitebox",), _read),
    (("features",), lambda found: "; ".join(
        _read(found[how]) for how in ("equations", "generator", "regression") if how in found)),
    (("backdoor",), lambda found: f"{_within(found['success'], found['interval'])} ({found['untrained']:.0%})"),
    (("hijack",), lambda found: f"{_read(found)}; {_read(found['honest'])}"),
)  # fmt: skip
"""Kinds of attacks, and the function that makes a cell from their numbers."""


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(CASES))
