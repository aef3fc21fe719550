"""The first screen of a run's page: a sentence with the result, and a few cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.common.run.json_text import is_number
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.text import plain
from colonnade.reports.console.progress import JUDGED
from colonnade.reports.console.summary import (
    back_off_words,
    best_of_stopped,
    fallen_words,
    measure_of,
    pace_words,
    positive_of,
)
from colonnade.reports.decision import confusion_of, decision_words
from colonnade.reports.html.page import tile
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.presence import stragglers
from colonnade.reports.run_page.privacy import headline as spent
from colonnade.reports.run_page.privacy import privacy_card
from colonnade.reports.standings.contender import estimated
from colonnade.reports.words import amount, counted, percent, seconds

_NAMES = {"accuracy": "accuracy", "rmse": "RMSE", **JUDGED}
_PARTS = {"test": "test", "val": "validation"}
_ENDS = {
    "completed": ("Completed", ""), "interrupted": ("Interrupted", "warn"), "failed": ("Failed", "bad"),
    "unfinished": ("Running", ""),
}  # fmt: skip
_UNFINISHED = "The run has not ended: it goes on, or its server was killed. This is what its events say so far."


@dataclass(frozen=True)
class Reached:
    """The value that judges a run's kept model.

    Args:
        part: test or val.
        metric: accuracy, auc, balanced_accuracy or rmse.
        chance: the value of a model without columns, if known.
        round: the best model's, if the run's is not the last.
    """

    part: str
    metric: str
    value: float
    chance: float | None
    round: int | None

    @property
    def said(self) -> str:
        return f"{_NAMES[self.metric]} {say(self.metric, self.value)}"


def say(metric: str, value: float) -> str:
    """A value in words: accuracies in per cent to three digits, near 1 to four; others in plain digits."""
    if not metric.endswith("accuracy"):
        return plain(value)
    return percent(value, 4 if value > 0.99 else 3)


def result_of(said: Mapping[str, Any]) -> Reached | None:
    """On test rows, else on validation rows; None if nothing was measured."""
    best = best_of_stopped(said)
    measured = said["metrics"] if best is None else best
    for part in _PARTS:
        for metric in filter(None, (measure_of(said), "accuracy", "rmse")):
            if is_number(value := measured.get(f"{part}_{metric}")):
                round = None if best is None else best["round"]
                return Reached(part, metric, float(value), _chance(said, part, metric), round)
    return None


def _chance(said: Mapping[str, Any], part: str, metric: str) -> float | None:
    if metric == "auc":
        return 0.5
    if metric == "balanced_accuracy":
        return 1 / len(names) if (names := (said.get("classes") or {}).get("names")) else None
    found = said["metrics"].get(f"{part}_baseline_{metric}")  # the rows alone decide: equal in all rounds
    return float(found) if is_number(found) else None


def headline(run: RecordedRun) -> str:
    """A run in a line of text: the result, what was run, and the privacy spent."""
    return f"{answer(run)} {described(run)}; {spent(run.summary)}."


def answer(run: RecordedRun) -> str:
    """The main result: how good the model is compared with none, or why there is none."""
    said, result = run.summary, result_of(run.summary)
    after = counted(said["rounds"], "round")
    begin = {
        "failed": f"The run failed after {after}: {str(said.get('error') or 'no reason is known').rstrip('.')}. ",
        "interrupted": f"The run was interrupted after {after}. ",
        "unfinished": f"Round {said['rounds']}{_of_all(run)} so far. ",
    }.get(said["status"], "")
    if result is None:
        loss = said["metrics"].get("train_loss")
        trained = f": the training loss is {plain(loss)}" if is_number(loss) else ""
        return f"{begin}No evaluation was made{' yet' if said['status'] == 'unfinished' else ''}{trained}."
    trivial = trivial_model(run)
    ours = f"{result.said} on {_rows(run, result)}"
    if result.chance is not None:
        chance = say(result.metric, result.chance)
        ours += f"; {trivial} has {chance}" if result.metric == "rmse" else f"; a model of {trivial} has {chance}"
    ours = f"No better than {trivial}: {ours}" if said.get("warning") else f"{ours[:1].upper()}{ours[1:]}"
    ours += pooled_words(run, result)
    kept = "" if result.round is None else f" It is the model of round {result.round}, the best of {said['rounds']}."
    return f"{begin}{ours}.{kept}"


def pooled_words(run: RecordedRun, result: Reached) -> str:
    """The distance of a result from a model of all tables pooled, tested on the same rows; "" if none is known."""
    if run.pooled is None or (pooled := result_of(run.pooled[1])) is None:
        return ""
    metric, part = result.metric, "test" if result.part == "test" else "validation"
    if (pooled.part, pooled.metric) != (result.part, metric):
        return ""
    own, other = (
        estimated(found.value, of, part, metric) for found, of in ((result, run.summary), (pooled, run.pooled[1]))
    )
    if not own.differs(other):
        return f"; not told apart from all tables pooled ({say(metric, other.value)})"
    gap = own.value - other.value
    said = plain(abs(gap), 2) if metric == "rmse" else f"{plain(100 * abs(gap), 2)} points"
    return f"; {said} {'above' if gap > 0 else 'below'} all tables pooled"


def _of_all(run: RecordedRun) -> str:
    planned = next((event.get("rounds") for event in reversed(run.events) if event["kind"] == "begin"), None)
    return f" of {planned}" if planned else ""


def _rows(run: RecordedRun, result: Reached) -> str:
    part = _PARTS[result.part]
    count = rows_of(run.summary).get(part)
    many = f"{count:,} " if count else ""
    if result.part == "test":
        return f"{many}test rows that nobody trained on"
    return f"{many}validation rows" + (", by which its round was chosen" if result.round else "")


def described(run: RecordedRun) -> str:
    """The protocol, the number of rounds and the duration."""
    said = run.summary
    on = f" on {said['dataset']}" if said.get("dataset") else ""
    took = seconds(said["seconds"]) + (" of simulated delays" if run.virtual else "")
    name = said["protocol"] or "A run"
    return f"{name}{on} among {counted(len(run.parties), 'party')}, {counted(said['rounds'], 'round')} in {took}"


def trivial_model(run: RecordedRun) -> str:
    """The model without columns, in words."""
    if (number := (run.summary.get("classes") or {}).get("commonest")) is None:
        return "always the mean" if any(key.endswith("rmse") for key in run.summary["metrics"]) else "none"
    names = class_names(run)
    if number < len(names):
        return f"always {names[number]!r}"
    return "always the commonest class"


def class_names(run: RecordedRun) -> Sequence[str]:
    """In the order of their numbers, as far as the summary or the configuration has them."""
    found = (run.summary.get("classes") or {}).get("names") or run.sections["federation"].get("classes")
    return [str(name) for name in found] if isinstance(found, list) else ()


def rows_of(summary: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of rows by part; from the confusion matrices, where the summary does not say them."""
    found = dict(summary.get("rows") or {})
    for part in _PARTS.values():
        if counts := confusion_of(summary, part):
            found.setdefault(part, sum(map(sum, counts)))
    return {part: number for part, number in found.items() if number}


def cards(run: RecordedRun) -> list[dict[str, Any]]:
    """The tiles below the headline."""
    return [_end(run), _quality(run), _people(run), _cost(run), privacy_card(run)]


def notes(run: RecordedRun) -> list[str]:
    """Important notes: unfinished, failed, no better than none, falling."""
    said, notes = run.summary, []
    if said["status"] == "unfinished":
        notes.append(_UNFINISHED)
    elif said["status"] not in _ENDS:
        notes.append(f"The run is {said['status']}.")
    notes += [f"Warning: {why}." for why in (said.get("warning"), fallen_words(said)) if why]
    return notes


def _end(run: RecordedRun) -> dict[str, Any]:
    said, (value, tone) = run.summary, _ENDS.get(run.summary["status"], (str(run.summary["status"]), "warn"))
    lines = [f"{said['error']}"] if said.get("error") else []
    if said.get("stopped"):
        value, lines = "Stopped early", [*lines, f"because {said['stopped']}"]
    elif said["status"] == "completed":
        lines.append("all rounds that were planned")
    if said.get("hint") and not _diverged(run):
        lines.append(str(said["hint"]))
    if said["status"] in ("failed", "interrupted"):
        lines.append(_what_next(run))
    if (model := said.get("model")) and said["status"] == "completed":
        lines.append(f"model of round {model['round']}: {model['why']}")
    if said.get("back_offs"):
        lines.append(f"went back {back_off_words(said['back_offs'])}")
    return tile("How it ended", value, *lines, tone=tone)


def _what_next(run: RecordedRun) -> str:
    again = f"colonnade {'simulate' if run.virtual else 'up'} --resume {run.folder}"
    if _diverged(run):
        return (
            f"Lower the learning rates: `{again} --set every_party.optimiser.lr=RATE` goes on from a sound checkpoint."
        )
    if RunFolder(run.folder).model_record.exists() or run.summary["rounds"]:
        return f"When the cause is mended, `{again}` goes on from the last checkpoint."
    return "No round was done. When the cause is mended, begin it again."


def _diverged(run: RecordedRun) -> bool:
    return any(event["kind"] == "diverged" for event in run.events)


def _quality(run: RecordedRun) -> dict[str, Any]:
    said, result = run.summary, result_of(run.summary)
    if result is None:
        loss = said["metrics"].get("train_loss")
        return tile("Quality", "not measured", f"training loss {plain(loss)}" if is_number(loss) else "", tone="warn")
    lines = []
    if result.chance is not None:
        lines.append(f"{trivial_model(run)}: {say(result.metric, result.chance)}")
    if run.pooled is not None and pooled_words(run, result) and (pooled := result_of(run.pooled[1])) is not None:
        lines.append(f"all tables pooled, run {run.pooled[0]}: {say(pooled.metric, pooled.value)}")
    values = said["metrics"] if result.round is None else (said.get("best") or {})
    also = {"auc": "AUC", "accuracy": "accuracy", "r2": "R2", "mae": "MAE"}
    others = [f"{name} {say(key, found)}" for key, name in also.items()
              if key != result.metric and is_number(found := values.get(f"{result.part}_{key}"))]  # fmt: skip
    if others:
        lines.append(", ".join(others))
    if result.round is not None:
        lines.append(f"best round {result.round} of {said['rounds']}, by validation")
    if decision := said.get("decision"):
        lines.append(decision_words(decision))
    tone = "bad" if said.get("warning") else "warn" if fallen_words(said) else "good"
    return tile(f"Quality on {_PARTS[result.part]} rows", result.said, *lines, tone=tone)


def _people(run: RecordedRun) -> dict[str, Any]:
    rows = rows_of(run.summary)
    lines = [f"{rows[part]:,} {words}" for part, words in
             (("validation", "to choose the round"), ("test", "to test"))
             if rows.get(part)]  # fmt: skip
    if (words := _prevalence(run)) is not None:
        lines.append(words)
    value = f"{rows['train']:,} rows to train on" if "train" in rows else counted(len(run.parties), "party")
    if "train" in rows:
        lines.insert(0, f"at {counted(len(run.parties), 'party')}, the labels at the server")
    return tile("People and rows", value, *lines)


def _prevalence(run: RecordedRun) -> str | None:
    """The share of the positive class among the training rows, or of the commonest of several."""
    classes = run.summary.get("classes") or {}
    if (share := classes.get("share")) is None:
        return None
    if (positive := positive_of(run.summary)) is not None:
        of_positive = share if classes["commonest"] == 1 else 1 - share
        return f"{positive!r}: {percent(round(of_positive, 3))} of the training rows"
    name = trivial_model(run).removeprefix("always ")
    return f"commonest of {len(class_names(run)) or 'the'} classes: {name}, {percent(round(share, 3))}"


def _cost(run: RecordedRun) -> dict[str, Any]:
    said = run.summary
    lines = [counted(said["rounds"], "round")]
    if run.virtual:
        lines.append("simulated: only delays take time")
    elif is_number(first := said.get("seconds_to_first_round")):
        lines.append(f"first round after {seconds(first)}")
    if moved := list(_moved(said)):
        lines.append(", ".join(moved))
    if said["rounds"]:
        lines.append(stragglers(run))
    if said.get("pace"):
        lines.append(f"turns: {pace_words(said['pace'])}")
    return tile("Time and traffic", seconds(said["seconds"]), *lines)


def _moved(said: Mapping[str, Any]) -> Iterator[str]:
    for way, to in (("up", "to the server"), ("down", "to the parties")):
        of_way = (said.get("bytes") or {}).get(way) or {}
        if "wire" in of_way:
            yield f"{amount(of_way['wire'])} {to}"
        elif "payload" in of_way:
            yield f"{amount(of_way['payload'])} of tensors {to}"
