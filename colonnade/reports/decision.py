"""`decision` of a summary in words: the probability from which a row counts as positive, and the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colonnade.common.text import plain
from colonnade.reports.words import counted

_BY = {"f1": "the best F1", "youden": "the best Youden index", "cost": "the least cost"}
_MEASURES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1", "cost": "cost"}
_CLOSER = {"log_loss": "log loss", "brier": "Brier score", "ece": "expected calibration error"}


def decision_of(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns `decision` if it is well-formed; None if a row gets its likeliest class."""
    found = summary.get("decision")
    if not isinstance(found, Mapping):
        return None
    number = all(isinstance(found.get(key), int | float) for key in ("threshold", "rows", "round"))
    return found if number and all(isinstance(found.get(key), str) for key in ("class", "by")) else None


def decision_words(decision: Mapping[str, Any]) -> str:
    """The rule, and how it was chosen."""
    at, rows, by = decision["threshold"], counted(decision["rows"], "validation row"), decision["by"]
    said = f"{decision['class']!r} from a probability of {plain(at)} on" if at > 0 else f"always {decision['class']!r}"
    if by in _BY:
        said += f": {_BY[by]} on {rows}"
    elif by == "at":
        said += ", as configured"
    if (costs := _costs(decision)) is not None:
        said += f" (false positive {plain(costs[0])}, false negative {plain(costs[1])})"
    if decision.get("calibration"):
        said += f"; probabilities recalibrated on {rows} ({decision['calibration']})"
    return said


def decision_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines about the rule and its results on test (else validation) rows, compared with a threshold of .5."""
    if (decision := decision_of(summary)) is None:
        return
    yield "decision", decision_words(decision)
    costs, at = _costs(decision), plain(decision["threshold"])
    for part in ("test", "validation"):
        of_part = summary.get("details", {}).get(part) if isinstance(summary.get("details"), Mapping) else None
        found = of_part.get("decision") if isinstance(of_part, Mapping) else None
        if not isinstance(of_part, Mapping) or not isinstance(found, Mapping):
            continue
        if here := _measured(found.get("confusion"), costs):
            yield f"{part} at {at}", _said(here)
        recalibrated = bool(decision.get("calibration"))
        if (at != "0.5" or recalibrated) and (even := _measured(of_part.get("confusion"), costs)):
            yield f"{part} at 0.5{', raw' if recalibrated else ''}", _said(even)
        if known := list(_closer(found.get("probabilities"))):
            yield f"{part} probabilities", ", ".join(known)
        return


def _measured(confusion: Any, costs: tuple[float, float] | None) -> dict[str, float]:
    """Metrics of a two-class confusion matrix, as far as they are defined; none if it is malformed."""
    match confusion:
        case [[int(others), int(false)], [int(missed), int(hits)]]:
            rows = others + false + missed + hits
        case _:
            return {}
    shares = {
        "accuracy": (hits + others, rows), "precision": (hits, hits + false), "recall": (hits, hits + missed),
        "f1": (2 * hits, 2 * hits + false + missed),
    }  # fmt: skip
    known = {name: above / below for name, (above, below) in shares.items() if below > 0}
    return known | ({"cost": (costs[0] * false + costs[1] * missed) / rows} if costs is not None and rows > 0 else {})


def _said(found: Mapping[str, float]) -> str:
    words = {name: f"{value:.2%}" if name == "accuracy" else plain(value) for name, value in found.items()}
    return ", ".join(f"{_MEASURES[name]} {value}{' a row' if name == 'cost' else ''}" for name, value in words.items())


def _closer(found: Any) -> Iterator[str]:
    """Calibration errors of probabilities, before and after recalibration."""
    match found:
        case {"before": Mapping() as before, "after": Mapping() as after}:
            for name, words in _CLOSER.items():
                if all(isinstance(each.get(name), int | float) for each in (before, after)):
                    yield f"{words} {plain(after[name])} (before: {plain(before[name])})"


def _costs(decision: Mapping[str, Any]) -> tuple[float, float] | None:
    match decision.get("costs"):
        case [int() | float() as false_positive, int() | float() as false_negative]:
            return float(false_positive), float(false_negative)
    return None
