"""The first difference between two runs or two states, in words that name member, message, field and round."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from colonnade.common.messaging.message import Message, schema
from colonnade.common.run.state import Snapshot
from colonnade.simulation.federation import Outcome

_FRESH = frozenset({"told"})
"""Names of hashes in a state that cover numbers drawn anew in every session."""


def of_runs(one: Outcome, two: Outcome, fresh: Collection[str] = ()) -> str:
    """The first difference of two runs in messages, losses, states or metrics; "" for runs with equal bits.

    Args:
        fresh: kinds of messages whose values differ in every run.
    """
    return (
        _of_messages(one, two, fresh)
        or of_losses(losses(one), losses(two))
        or of_states(one, two, max(one.saved, default=0))
        or of_metrics(one, two)
    )


def of_states(one: Outcome, two: Outcome, round: int) -> str:
    """The first difference of two runs in the members' states after a round, or ""."""
    for member, state in one.saved.get(round, {}).items():
        other = two.saved.get(round, {}).get(member)
        said = "there is none in the other run" if other is None else of_snapshots(state, other)
        if said:
            return f"the state of {member} after round {round}: {said}"
    return ""


def of_snapshots(one: Snapshot, two: Snapshot) -> str:
    """The first difference of two states of a member, by the name in its `ctx.state`, or ""."""
    for name in {**one.values, **two.values}:
        if name in _FRESH:
            continue
        if (name in one.values) != (name in two.values):
            return f"one holds {name!r} and the other does not"
        if one.values[name] != two.values[name]:
            return f"{name!r} differs"
    for path, tensor in one.tensors.items():
        if not torch.equal(tensor, two.tensors[path]):
            return f"{path!r} differs{_by(tensor, two.tensors[path])}"
    return ""


def of_losses(one: Sequence[float], two: Sequence[float], first: int = 1) -> str:
    """The first difference in the loss of a round, or "". `first` is the number of the first round."""
    if len(one) != len(two):
        return f"one run recorded {len(one)} rounds, the other {len(two)}"
    found = next((place for place, pair in enumerate(zip(one, two, strict=True)) if _other(*pair)), None)
    return "" if found is None else f"the loss of round {found + first} is {one[found]!r} and {two[found]!r}"


def of_metrics(one: Outcome, two: Outcome) -> str:
    """The first difference of two runs in the last evaluation, or ""."""
    ours, theirs = one.server.metrics, two.server.metrics
    found = next((name for name in {**ours, **theirs} if _other(ours.get(name), theirs.get(name))), None)
    return "" if found is None else f"{found} is {ours.get(found)} and {theirs.get(found)}"


def losses(run: Outcome) -> list[float]:
    """The loss of every round that was not skipped."""
    return [float(event["loss"]) for event in run.of_kind("round") if "loss" in event]


def message_name(message: Message, sender: str, to: str) -> str:
    """'Embedding from party1 to server, round 3'."""
    return f"{type(message).__name__} from {sender} to {to}, round {message.round}"


def _of_messages(one: Outcome, two: Outcome, fresh: Collection[str]) -> str:
    for ours, theirs in zip(one.messages, two.messages, strict=False):
        if (*ours[:2], type(ours[2]).__name__) != (*theirs[:2], type(theirs[2]).__name__):
            return f"one run sent {_named(ours)}, the other {_named(theirs)}"
        if type(ours[2]).__name__ not in fresh and (field := differing_field(ours[2], theirs[2])):
            return f"{_named(ours)}: field {field} differs{_by(getattr(ours[2], field), getattr(theirs[2], field))}"
    if len(one.messages) != len(two.messages):
        more = max(one.messages, two.messages, key=len)[min(len(one.messages), len(two.messages))]
        counts = f"one run sent {len(one.messages)} messages, the other {len(two.messages)}"
        return f"{counts}; the first more is {_named(more)}"
    return ""


def differing_field(one: Message, two: Message) -> str:
    """The first field that differs in a bit between two messages of a kind, or ""."""
    for name in schema(type(one)):
        ours, theirs = getattr(one, name), getattr(two, name)
        if isinstance(ours, Tensor):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype or not torch.equal(ours, theirs):
                return name
        elif _other(ours, theirs):
            return name
    return ""


def _other(one: float | str | None, two: float | str | None) -> bool:
    """True if two values differ; NaN equals NaN."""
    return repr(one) != repr(two)


def _named(sent: tuple[str, str, Message]) -> str:
    return message_name(sent[2], sent[0], sent[1])


def _by(one: Any, two: Any) -> str:
    if not isinstance(one, Tensor):
        return f": {one!r} and {two!r}"
    if one.shape != two.shape:
        return f": shape {tuple(one.shape)} and {tuple(two.shape)}"
    if not one.is_floating_point():
        return ""
    return f" by up to {(one - two).abs().max().item():.3g}"
