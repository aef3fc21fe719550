"""Privacy of every party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.common.run.numbers import plain
from colonnade.reports import guarantee
from colonnade.reports.console.summary import OF_TRAINING, what_else
from colonnade.reports.html.frame import facts, section, table
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.records.run import RecordedRun

_NOT_SAID = "What was spent is summed up at the run's end; until then every party's ledger has its own count."
_PERSON = (
    "A person whose row lies at every party is in the releases of all of them, which together say more than those of "
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


def privacy(run: RecordedRun) -> Html:
    """The guarantee in a sentence, why it is void if it is, and every party's accounting."""
    if "privacy" not in run.summary:
        return section("Privacy", tag("p", _NOT_SAID))
    spent = run.summary["privacy"]
    parts = [tag("p", _sentence(guarantee.describe_privacy(run.summary)))]
    if spent is not None:
        if why := guarantee.void(run.summary):
            parts.insert(0, tag("p", f"There is no guarantee: {why}.", class_="note"))
        else:
            parts.append(tag("p", _PERSON, class_="faint"))
        parts += [_by_party(run, spent), facts(guarantee.details(run.summary)), facts(_settings(spent))]
    labels = [(name, words) for name, words in what_else(run.summary) if name not in OF_TRAINING]
    return section("Privacy", *parts, facts(labels))


def headline(summary: Mapping[str, Any]) -> str:
    if "privacy" not in summary:
        return "what privacy it spent is not known before its end"
    return guarantee.headline(summary)


def _by_party(run: RecordedRun, spent: Mapping[str, Any]) -> Html:
    kinds = [kind for kind in _ADJACENCIES if kind in spent["epsilon"]]
    delta = f"{run.summary['delta']:g}"
    rows = [
        (name, _number(spent["releases"].get(name)), *(_number(spent["epsilon"][kind].get(name)) for kind in kinds),
         delta)
        for name in run.parties
    ]  # fmt: skip
    if person := run.summary.get("person"):
        found = "no guarantee" if person["epsilon"] is None else _number(person["epsilon"])
        strict = "row" if "row" in kinds else "replace"
        own = (found if kind == strict else "-" for kind in kinds)
        rows.insert(0, ("all, of a person", _number(_together(spent)), *own, delta))
    heads = ("party", "releases", *(_ADJACENCIES[kind] for kind in kinds), "delta")
    why = guarantee.void(run.summary)
    return table(heads, rows, caption="Privacy spent by every party" + (", by the accounting" if why else ""))


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
