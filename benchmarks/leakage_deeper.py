"""The second table of `python -m benchmarks.leakage`: slower attacks, on one party, with intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from colonnade.reports import guarantee

HEADS = (
    "protocol, defence", "epsilon of a party", "AUC of norm, direction", "one batch (clusters; chance)",
    "completion, active (raw columns)", "white box", "from predictions: generator, regression", "backdoor (untrained)",
    "hijack; honest server",
)  # fmt: skip

Numbers = Mapping[str, Any]


def table(places: Mapping[str, Path]) -> str:
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    return "\n".join([*lines, *(_line(name, place) for name, place in places.items())])


def _line(name: str, place: Path) -> str:
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
    return f"{_share(best['accuracy'], best['interval'])} ({best['clusters']:.0%}; {best['chance']:.0%})"


def _completion(passive: Numbers, active: Numbers) -> str:
    shares = (f"{one['accuracy']:.0%} [{one['lowest']:.0%}, {one['highest']:.0%}]" for one in (passive, active))
    return f"{', '.join(shares)} ({passive['baseline']:.0%})"


def _read(found: Numbers) -> str:
    """The error relative to that of the mean row, and the share of readable reconstructions."""
    return f"{found['mse'] / found['floor']:.2f}, {_share(found['readable']['made'], found['readable']['interval'])}"


def _features(found: Numbers) -> str:
    return "; ".join(_read(found[how]) for how in ("equations", "generator", "regression") if how in found)


def _hijack(found: Numbers) -> str:
    return f"{_read(found)}; {_read(found['honest'])}"


def _backdoor(found: Numbers) -> str:
    return f"{_share(found['success'], found['interval'])} ({found['untrained']:.0%})"


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


def _share(share: float, interval: tuple[float, float]) -> str:
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
