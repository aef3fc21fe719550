"""`decision` of a summary in words: the probability from which a row counts as positive, and the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from colonnade.common.text import plain
from colonnade.reports.words import counted

_BY = {"f1": "the best F1", "youden": "the best Youden index", "cost": "the least cost"}
_MEASURES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1", "cost": "cost"}
_CLOSER = {"log_loss": "log loss", "brier": "Brier score", "ece": "expected calibration error"}


def confusion_of(summary: Mapping[str, Any], part: str) -> Sequence[Sequence[int]]:
    """Rows by true, then predicted class; empty if it is not known."""
    found: Sequence[Sequence[int]] = ((summary.get("details") or {}).get(part) or {}).get("confusion") or ()
    return found


def decision_words(decision: Mapping[str, Any]) -> str:
    """The rule, and how it was chosen."""
    at, rows, by = decision["threshold"], counted(decision["rows"], "validation row"), decision["by"]
    said = f"{decision['class']!r} from a probability of {plain(at)} on" if at > 0 else f"always {decision['class']!r}"
    if by in _BY:
        said += f": {_BY[by]} on {rows}"
    elif by == "at":
        said += ", as configured"
    if costs := decision.get("costs"):
        said += f" (false positive {plain(costs[0])}, false negative {plain(costs[1])})"
    if decision.get("calibration"):
        said += f"; probabilities recalibrated on {rows} ({decision['calibration']})"
    return said


def decision_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines about the rule and its results on test (else validation) rows, compared with a threshold of .5."""
    if not (decision := summary.get("decision")):
        return
    yield "decision", decision_words(decision)
    costs, at = decision.get("costs"), plain(decision["threshold"])
    for part in ("test", "validation"):
        of_part = (summary.get("details") or {}).get(part) or {}
        if not (found := of_part.get("decision")):
            continue
        yield f"{part} at {at}", _said(_measured(found["confusion"], costs))
        recalibrated = bool(decision.get("calibration"))
        if at != "0.5" or recalibrated:
            yield f"{part} at 0.5{', raw' if recalibrated else ''}", _said(_measured(of_part["confusion"], costs))
        if closer := found.get("probabilities"):
            before, after = closer["before"], closer["after"]
            known = (f"{words} {plain(after[name])} (before: {plain(before[name])})" for name, words in _CLOSER.items())
            yield f"{part} probabilities", ", ".join(known)
        return


def _measured(confusion: Sequence[Sequence[int]], costs: Sequence[float] | None) -> dict[str, float]:
    """Metrics of a two-class confusion matrix, as far as they are defined."""
    (others, false), (missed, hits) = confusion
    rows = others + false + missed + hits
    shares = {
        "accuracy": (hits + others, rows), "precision": (hits, hits + false), "recall": (hits, hits + missed),
        "f1": (2 * hits, 2 * hits + false + missed),
    }  # fmt: skip
    known = {name: above / below for name, (above, below) in shares.items() if below > 0}
    return known | ({"cost": (costs[0] * false + costs[1] * missed) / rows} if costs else {})


def _said(found: Mapping[str, float]) -> str:
    words = {name: f"{value:.2%}" if name == "accuracy" else plain(value) for name, value in found.items()}
    return ", ".join(f"{_MEASURES[name]} {value}{' a row' if name == 'cost' else ''}" for name, value in words.items())
