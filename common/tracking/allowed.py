"""The list of values that a tracker may receive. Everything else stays in the run's folder.

A field that is not listed is left out, and a listed field passes only as the kind of value that its list names: a
number, or a word of the agreed section. A tracker therefore gets no cell, label, id, column name, class name, path,
address or text of an error: no listed field holds one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from colonnade.common.run.json_text import is_number
from colonnade.common.run.rate_limit import Event
from colonnade.common.tracking.tracker import Parameter, Status

ROUND: Mapping[str, str] = {
    "loss": "train_loss",
    "epoch": "epoch",
    "seconds": "round_seconds",
    "bytes_up": "bytes_up",
    "bytes_down": "bytes_down",
}
"""Fields of the server's `round` events, each with the name of its metric."""

COUNTED: Mapping[str, str] = {
    "missing": "answers_missing",
    "late": "answers_late",
    "skipped": "rounds_skipped",
    "rollback": "rollbacks",
    "back_off": "back_offs",
}
"""Events of the server that are counted, each with the name of its metric."""

AGREED = (
    "id", "protocol", "task", "epochs", "rounds", "batch", "shuffle", "seed", "align", "rows", "evaluate", "stop",
    "quorum", "timeouts", "checkpoint", "absence", "compress", "blinding", "privacy", "adjust", "participation",
    "benchmark", "back_off",
)  # fmt: skip
"""Keys of the agreed section. Class names, rules for keys and fingerprints are not listed."""

OWN_NUMBERS = (
    "threads",
    "head.bias", "head.hidden", "head.layers", "head.dropout",
    "optimiser.lr", "optimiser.momentum", "optimiser.weight_decay", "optimiser.nesterov", "optimiser.eps",
    "optimiser.lr_decay", "optimiser.initial_accumulator_value", "optimiser.alpha", "optimiser.centered",
    "privacy.labels.scale", "privacy.labels.epsilon", "privacy.labels.size", "privacy.labels.prior",
    "privacy.labels.seeded",
    "privacy.answers.clip", "privacy.answers.head_clip", "privacy.answers.noise_multiplier",
    "privacy.answers.epsilon", "privacy.answers.delta", "privacy.answers.seeded",
)  # fmt: skip
"""Dotted keys of the server's own section that pass if they are numbers or truth values."""

OWN_WORDS: Mapping[str, tuple[str, ...]] = {
    "head.name": ("linear", "mlp", "normed"),
    "optimiser.name": ("sgd", "adam", "adamw", "adagrad", "rmsprop"),
    "class_weights": ("none", "balanced"),
    "device": ("auto", "cpu"),
}
"""Dotted keys of the server's own section that pass if their value is one of these words."""

SUMMARY = (
    "schema", "rounds", "seconds", "seconds_to_first_round", "best", "bytes", "epsilon", "delta", "person", "privacy",
    "label_privacy", "answer_privacy", "theorem", "pace", "absent", "back_offs", "missing", "late",
)  # fmt: skip
"""Keys of a summary whose numbers pass, also those below them under the keys of `BELOW`."""

BELOW = frozenset({
    "round", "checkpoint", "up", "down", "payload", "wire", "parties", "epsilon", "delta", "clip", "head_clip", "scale",
    "noise_multiplier", "releases", "release_epsilon", "deviation", "accounted", "rows", "turns", "staleness", "row",
    "participation", "replace", "zeta", "variance", "delta_prime", "epsilon_bar", "epsilon_bar_printed", "delta_bar",
    "epsilon_renyi", "times", "factor", "size", "codes", "set_size", "encoder_epsilon", "code_epsilon",
    "held_out_epsilon",
})  # fmt: skip
"""Keys at any depth of a summary, besides parties' names and names of metrics."""

_SCORES = (
    "accuracy", "loss", "rmse", "mae", "r2", "f1", "log_loss", "brier", "ece", "auc", "average_precision",
    "balanced_accuracy", "ks", "lift", "gain", "baseline_accuracy", "baseline_rmse",
)  # fmt: skip


def score_names(parties: Collection[str], more: Collection[str] = ()) -> frozenset[str]:
    """Names of an evaluation's metrics, with `more` of installed packages; vfedmh has a score for every party."""
    own = [f"{score}_{party}" for score in ("accuracy", "rmse") for party in parties]
    return frozenset(f"{part}_{score}" for part in ("val", "test") for score in (*_SCORES, *own, *more))


def number(value: Any) -> float | None:
    """A finite number; None for anything else, also for a truth value."""
    return float(value) if is_number(value) and not isinstance(value, bool) else None


def round_metrics(event: Event) -> dict[str, float]:
    return numbers({name: event.get(field) for field, name in ROUND.items()}, ROUND.values())


def numbers(values: Mapping[str, Any], names: Collection[str]) -> dict[str, float]:
    found = {name: number(value) for name, value in values.items() if name in names}
    return {name: value for name, value in found.items() if value is not None}


def agreed_parameters(section: Mapping[str, Any], parties: Collection[str], outputs: int) -> dict[str, Parameter]:
    """Parameters of the agreed section (in JSON types) by dotted key; `outputs` counts classes or targets."""
    found = dict(leaf for name in AGREED for leaf in _leaves(name, section.get(name)))
    return found | {"parties": ", ".join(parties), "outputs": outputs}


def own_parameters(section: Mapping[str, Any]) -> dict[str, Parameter]:
    """Parameters of the server's own section (in JSON types), by their dotted keys."""
    found: dict[str, Parameter] = {}
    for key in OWN_NUMBERS:
        value = _at(section, key)
        if isinstance(value, bool | int | float):
            found[f"server.{key}"] = value
    for key, words in OWN_WORDS.items():
        value = _at(section, key)
        if isinstance(value, str) and value in words:
            found[f"server.{key}"] = value
    return found


def summary_record(
    summary: Mapping[str, Any], status: Status, parties: Collection[str], names: Collection[str]
) -> dict[str, Any]:
    """The content of summary.json as a tracker may store it; `names` are the metrics of `score_names`."""
    keys = BELOW.union(parties, names)
    found = {key: _below(summary[key], keys) for key in SUMMARY if key in summary}
    metrics = summary.get("metrics")
    return {
        "status": status,
        **found,
        "metrics": numbers(metrics if isinstance(metrics, Mapping) else {}, {*names, "train_loss"}),
    }


def epsilons(summary: Mapping[str, Any], parties: Collection[str]) -> dict[str, float]:
    """Epsilon at the end, for a person and for every party, by the name of its metric."""
    spent, person = summary.get("epsilon"), summary.get("person")
    found = numbers(spent if isinstance(spent, Mapping) else {}, parties)
    of_all = numbers(person if isinstance(person, Mapping) else {}, ("epsilon",)).get("epsilon")
    first = {} if of_all is None else {"epsilon_of_a_person": of_all}
    return first | {f"epsilon/{party}": value for party, value in found.items()}


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Parameter]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _leaves(f"{key}.{name}", below)
    elif isinstance(value, str | int | float):
        yield key, value


def _at(section: Mapping[str, Any], key: str) -> Any:
    value: Any = section
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) and "file" not in value else None
    return value


def _below(value: Any, keys: Collection[str]) -> Any:
    """The numbers of a part of a summary; null for anything else."""
    if isinstance(value, Mapping):
        return {key: _below(below, keys) for key, below in value.items() if key in keys}
    return value if isinstance(value, bool | int) else number(value)
