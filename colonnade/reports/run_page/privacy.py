"""Privacy: a picture of the data between the members with their protection, and the privacy spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.messaging.message import PartyMessage
from colonnade.common.text import plain
from colonnade.reports import guarantee
from colonnade.reports.console.summary import OF_TRAINING, what_else
from colonnade.reports.html.page import tile
from colonnade.reports.records.ledgers import describe_kind
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import counted, listed

_NOT_SAID = "What was spent is summed up at the run's end; until then every party's ledger has its own count."
_PERSON = (
    "A person present at every party is in the releases of all of them, which together reveal more than those of "
    "one: that epsilon is in the first line. A party's is about what that party sends alone."
)
_ADJACENCIES = {
    "participation": "epsilon, a party absent",
    "replace": "epsilon, other data",
    "row": "epsilon, a row",
}
_SETTINGS = {
    "mechanism": "mechanism",
    "clip": "clip",
    "noise_multiplier": "noise multiplier",
    "accounting": "accounting",
    "release": "release",
    "rescale": "rescale",
    "deviation": "standard deviation of the noise",
    "release_epsilon": "epsilon of a single release",
    "present": "noise once: fewest parties in a sum",
    "colluders": "noise once: colluding parties that it allows for",
    "gain": "noise once: times less than noise of each party",
    "codes": "codes",
    "set_size": "codes in a released set",
    "encoder_epsilon": "epsilon of a training row in the encoder",
    "code_epsilon": "epsilon of a training row's code",
    "held_out_epsilon": "epsilon of any other row's code",
    "secret_steps": "steps over rows drawn in secret",
    "about": "about",
}
_RETURNED = {
    "gradients": "gradients of the loss at what the party sent",
    "duals": "dual variables and residuals of the batch's rows",
    "losses": "losses, or differences of losses",
    "labels": "the labels, or noisy ones",
    "average": "the average of all embeddings, and gradients at the party's own predictions",
    "questions": "gradients of all training rows, and splits of the party's own columns",
    "sums": "residuals of all rows, and sums over the bins of the party's own columns",
}


@dataclass(frozen=True)
class Flow:
    """An arrow of the picture.

    Args:
        way: up to the server, or down to the parties.
        protection: in words; "" for something that is not private.
        tone: good if protected, bad if in the clear, "" if not private.
    """

    way: str
    what: str
    protection: str
    tone: str


def privacy(run: RecordedRun) -> dict[str, Any]:
    """The picture; the guarantee in a sentence, why it is void if it is, and every party's accounting."""
    contract = CONTRACTS.get(str(run.summary["protocol"]))
    found: dict[str, Any] = {
        "flows": [] if contract is None else [*_up(run, contract), *_down(run, contract)],
        "sees": {} if contract is None else contract.sees,
        "parties": f"{listed(run.parties, 4)}" if run.parties else "the parties",
        "said": _NOT_SAID, "void": "", "table": None, "facts": [],
    }  # fmt: skip
    if "privacy" not in run.summary:
        return found
    spent = run.summary["privacy"]
    found["said"] = _sentence(guarantee.describe_privacy(run.summary))
    found["facts"] = [(name, words) for name, words in what_else(run.summary) if name not in OF_TRAINING]
    if spent is not None:
        void = guarantee.void(run.summary)
        found["void"] = f"There is no guarantee: {void}." if void else ""
        found["said"] += "" if void else f" {_PERSON}"
        found["table"] = _by_party(run, spent)
        found["facts"] = [*guarantee.details(run.summary), *_settings(spent), *found["facts"]]
    return found


def headline(summary: Mapping[str, Any]) -> str:
    """The privacy spent, in half a sentence."""
    if "privacy" not in summary:
        return "what privacy it spent is not known before its end"
    return guarantee.headline(summary)


def privacy_card(run: RecordedRun) -> dict[str, Any]:
    """The tile: a person's epsilon, or that there is no guarantee, and who sees what."""
    contract, said = CONTRACTS.get(str(run.summary["protocol"])), run.summary
    sees = {} if contract is None else contract.sees
    lines = [f"The {role} sees {what}." for role, what in sees.items()]
    value, tone = "not known before the end", ""
    if "privacy" in said:
        person = (said.get("person") or {}).get("epsilon")
        if person is not None:
            value, lines = (
                f"epsilon {person:.2f} for a person{guarantee.uncounted(said)}",
                [_sentence(headline(said)), *lines],
            )
        else:
            value, tone = "No guarantee", "warn"
            lines = lines if said["privacy"] is None else [_sentence(headline(said)), *lines]
    return tile("Privacy: who sees what", value, *lines, tone=f"{tone} whole")


def protected(mechanism: str) -> tuple[str, str]:
    """Words for a protection as ledgers name it, and the tone of its arrow."""
    if mechanism == "":
        return "not private", ""
    if mechanism == "none":
        return "in the clear", "bad"
    return mechanism.removeprefix("none, ").replace(
        "blinded, a sum of", "masked: the server reads only the sum of"
    ), "good"


def _up(run: RecordedRun, contract: Contract[Any]) -> Iterator[Flow]:
    """Messages that left the parties by their ledgers; without ledgers, those that the protocol allows."""
    protocol = str(run.summary["protocol"])
    for kind, book in sorted(run.books.items(), key=lambda entry: -entry[1].bytes):
        if not any(book.mechanisms):
            continue
        ways = [protected(mechanism) for mechanism in book.mechanisms]
        tone = "bad" if any(tone == "bad" for _, tone in ways) else max((tone for _, tone in ways), default="")
        yield Flow("up", describe_kind(kind, protocol) or kind, "; ".join(words for words, _ in ways), tone)
    if public := [kind for kind, book in run.books.items() if not any(book.mechanisms)]:
        yield Flow(
            "up", f"{counted(len(public), 'kind')} of messages without private values: {listed(public, 4)}", "", ""
        )
    if run.books:
        return
    privacy = run.summary.get("privacy")
    mechanism = str(privacy["mechanism"]) if privacy and not privacy.get("void") else ""
    for name, declared in contract.kinds.items():
        if issubclass(declared, PartyMessage):
            words = (mechanism, "good") if mechanism else ("its protection stands in the parties' ledgers", "")
            yield Flow("up", describe_kind(name, protocol) or name, *words)


def _down(run: RecordedRun, contract: Contract[Any]) -> Iterator[Flow]:
    """What the parties learn about the labels."""
    what = _RETURNED.get(contract.exchange.returns) or contract.sees.get("party")
    if not what:
        return
    said = run.summary
    if (answers := said.get("answer_privacy")) and not answers["void"]:
        yield Flow("down", what, f"noise on every answer: epsilon {answers['accounted']:.2f} for a label", "good")
    elif (labels := said.get("label_privacy")) and labels["epsilon"] is not None:
        yield Flow("down", what, f"computed from noisy labels: epsilon {labels['epsilon']:.2f} for a label", "good")
    elif (said.get("forest") or {}).get("gradients") == "encrypted":
        yield Flow("down", what, "gradients encrypted", "good")
    elif contract.exchange.returns == "sums":
        yield Flow("down", what, "residuals encrypted; a sum is read by its party alone", "good")
    else:
        yield Flow("down", what, "in the clear", "bad")


def _by_party(run: RecordedRun, spent: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in _ADJACENCIES if kind in spent["epsilon"]]
    delta = f"{run.summary['delta']:g}"
    rows = [
        (name, _releases(spent, name), *(_number(spent["epsilon"][kind].get(name)) for kind in kinds),
         delta)
        for name in run.parties
    ]  # fmt: skip
    if person := run.summary.get("person"):
        found = "no guarantee" if person["epsilon"] is None else _number(person["epsilon"])
        strict = "row" if "row" in kinds else "replace"
        own = (found if kind == strict else "-" for kind in kinds)
        rows.insert(0, ("all, of a person", _number(_together(spent)), *own, delta))
    why = guarantee.void(run.summary)
    return {
        "heads": ("party", "releases", *(_ADJACENCIES[kind] for kind in kinds), "delta"),
        "rows": rows,
        "caption": "Privacy spent by every party"
        + (", by the accounting" if why else "")
        + guarantee.uncounted(run.summary),
    }


def _releases(spent: Mapping[str, Any], name: str) -> str:
    """Releases of a party, with the planned ones where it made fewer."""
    made, planned = spent["releases"].get(name), spent.get("planned", {}).get(name)
    return f"{made:.6g} of {planned} planned" if made and planned and made < planned else _number(made)


def _together(spent: Mapping[str, Any]) -> float | None:
    counts = spent["releases"].values()
    return None if None in counts else sum(counts)


def _settings(spent: Mapping[str, Any]) -> list[tuple[str, object]]:
    shown = [(words, spent[key]) for key, words in _SETTINGS.items() if spent.get(key) is not None]
    return [(words, plain(value) if isinstance(value, float) else value) for words, value in shown]


def _number(value: float | None) -> str:
    return "not said" if value is None else f"{value:.6g}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
