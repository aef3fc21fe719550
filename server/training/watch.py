"""Watches a training's numbers at the server: warns of growth beyond noise, and names the member where it began."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import DIVERGED, TrainingDiverged
from colonnade.common.messaging.message import Message, TensorSpec, schema
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.state import State

_STALE = 50  # rounds without a new peak, after which a high loss becomes the new baseline

GREW, EXPLODED = 10.0, 100.0  # factors over the largest earlier norm from which a norm grows, and explodes

_REMEMBERED = 20  # entries for which a past growth can still be the cause of another

_SLOW = 2.0  # factor over the largest earlier norm below which growth ends

_LAG = 10  # a norm is compared with those at least 10 entries back: growth by 1.3 each time is then 14-fold

_WINDOW = 5  # rounds of the moving median, which ignores two outliers
_ROSE, _EXPLODED_BY = 0.5, 3.0  # rise of the median above its best, in multiples of the first loss


class NormGrowth:
    """Norm of one value over rounds: it grows while it is far above all norms more than a few entries back.

    `kept` is the whole state between two rounds, part of the server's.
    """

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept
        if not kept:
            kept.update(since=0, factor=1.0, now=1.0, over=[0, 1.0], age=0, recent=[], before=0.0, usual=0.0)

    @property
    def since(self) -> int:
        """Round in which it began to grow, 0 if it does not."""
        return int(self._kept["since"])

    @property
    def factor(self) -> float:
        """Largest factor of growth since then; 1 if it does not grow."""
        return float(self._kept["factor"])

    @property
    def now(self) -> float:
        return float(self._kept["now"])

    def add(self, round: int, norm: float) -> None:
        """Adds the norm of a round, finite and not negative."""
        kept, recent = self._kept, self._kept["recent"]
        before = kept["before"] or next(filter(None, recent), 0.0)
        kept["age"] += 1
        if kept["since"]:
            self._follow(norm, before)
        elif before and norm >= GREW * before:
            again = kept["over"][0] and kept["age"] < _REMEMBERED
            kept.update(since=kept["over"][0] if again else round, usual=before)
            kept["factor"] = kept["now"] = norm / before
        if len(recent) == _LAG:
            kept["before"] = max(kept["before"], recent.pop(0))
        recent.append(norm)

    @property
    def exploded(self) -> bool:
        """True if it is far beyond what noise explains."""
        return self.factor >= EXPLODED

    @property
    def newest(self) -> float:
        return float(self._kept["recent"][-1]) if self._kept["recent"] else 0.0

    @property
    def last(self) -> tuple[int, float]:
        """Round in which the newest growth began, and its factor; also for a growth that ended recently."""
        if self.since:
            return self.since, self.factor
        since, factor = self._kept["over"]
        return (since, factor) if self._kept["age"] < _REMEMBERED else (0, 1.0)

    def _follow(self, norm: float, before: float) -> None:
        kept = self._kept
        kept["now"] = norm / kept["usual"]
        kept["factor"] = max(kept["factor"], kept["now"])
        if norm < _SLOW * before:
            kept.update(over=[kept["since"], kept["factor"]], age=0, since=0, factor=1.0, now=1.0)


class LossGrowth:
    """The loss over rounds, by its moving median: a few bad batches do not move it.

    It grows once it has risen above its best by half the first loss, and explodes by three times that loss. `kept` is
    the whole state between two rounds, part of the server's.
    """

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    @property
    def since(self) -> int:
        """First round of the rise, 0 if it does not grow."""
        return int(self._kept.get("since", 0))

    @property
    def rounds(self) -> int:
        """Number of consecutive rounds in which the median exploded."""
        return int(self._kept.get("rounds", 0))

    @property
    def best(self) -> float:
        """The lowest median so far; before the first one, the first loss."""
        return float(self._kept["best"])

    @property
    def now(self) -> float:
        return float(self._kept["now"])

    def add(self, round: int, loss: float) -> None:
        """Adds the loss of a round. It is finite; losses from other packages may be negative."""
        kept = self._kept
        if not kept:
            kept.update(scale=abs(loss), best=loss, now=loss, peak=loss, since=0, rounds=0, waited=0)
            kept.update(begun=False, recent=[])
        kept["recent"] = [*kept["recent"], [round, loss]][-_WINDOW:]
        if len(kept["recent"]) < _WINDOW:
            return
        kept["now"] = median(loss for _, loss in kept["recent"])
        if not kept["begun"]:  # noise may raise an untrained model's loss; an explosion raises it far more
            kept["begun"] = True
            kept["scale"] = max(kept["scale"], abs(kept["now"]) if abs(kept["now"]) < GREW * kept["scale"] else 0.0)
        kept["best"] = min(kept["best"], kept["now"])
        self._find_rise(kept["best"] + _ROSE * kept["scale"])
        exploded = self.since and self.now > self.best + _EXPLODED_BY * kept["scale"]
        kept["rounds"] = self.rounds + 1 if exploded else 0

    def _find_rise(self, line: float) -> None:
        kept = self._kept
        if kept["now"] <= line or not kept["scale"]:
            kept["since"] = 0
            return
        if not kept["since"]:
            first = next(round for round, loss in kept["recent"] if loss > line)
            kept.update(since=first, peak=kept["now"], waited=0)
        kept["waited"] = 0 if kept["now"] > kept["peak"] else kept["waited"] + 1
        kept["peak"] = max(kept["peak"], kept["now"])
        if kept["waited"] >= _STALE:  # a constant loss does not grow
            kept.update(best=kept["now"], since=0)


_BLAMED = 30.0  # factor of growth from which a member is blamed for a divergence
_APART = 1e6  # factor over every other party's norm that no healthy model reaches
_SUSTAINED = 10  # consecutive rounds with an exploded loss, after which a run may roll back
_RECEIVED, _LOSS, _SENT, _HEAD = range(4)  # order of causes within a round
_HEADS = ("head", "heads", "active model")  # keys of models in the state
_UNWATCHED = "Evaluation"  # evaluation messages repeat those of training


_Key = tuple[str, int, str, str]
"""Member that has the value, stage of the round, the value's name, and the party that sends or receives it."""


@dataclass(order=True)
class Onset:
    """Beginning of a growth. Onsets sort by round, then by stage within the round.

    Args:
        stage: received, loss, sent, or head, in the order of a round.
        less: negated factor of growth, so that the largest sorts first.
        member: whose numbers grow.
        what: description: "its Embedding.h has grown 120 times".
    """

    since: int
    stage: int
    less: float
    member: str
    what: str = field(compare=False)


class GrowthWatch:
    """Norms of messages and heads, and the loss, by round. Growth beyond noise begins with a `warning` event."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._fields: dict[type[Message], tuple[str, ...]] = {}
        self._last: tuple[Message | None, dict[str, float]] = (None, {})
        self.begin(State())

    def begin(self, state: State, round: int = 0) -> None:
        """Restarts from the restored state of a round, which stores the histories and the heads."""
        self._state = state
        self._round = self._done = round  # newest of a message, and newest completed
        self._loss = LossGrowth(state.keep("growth", dict[str, Any]))
        self._kept_norms = state.keep("norms", dict[str, dict[str, Any]])
        self._norms = {_key(text): NormGrowth(kept) for text, kept in self._kept_norms.items()}
        self._warning = state.keep("growth warned", dict[str, bool])
        self._ahead: list[tuple[int, _Key, float]] = []  # norms of unfinished rounds, in no checkpoint

    @property
    def _warned(self) -> bool:
        return self._warning.get("given", False)

    @property
    def growing(self) -> bool:
        """True if a checkpoint taken now may belong to a divergence."""
        return self._warned or bool(self._loss.since) or any(self._party_norms())

    @property
    def sustained(self) -> bool:
        return self._loss.rounds >= _SUSTAINED

    def received(self, party: str, message: Message) -> None:
        """Adds a party's message. Raises TrainingDiverged if a number is not finite."""
        self._enter(message, party, _RECEIVED, party)

    def sent(self, party: str, message: Message) -> None:
        """Adds a message to a party, before it leaves. Raises TrainingDiverged if a number is not finite."""
        self._enter(message, SERVER, _SENT, party)

    def round(self, round: int, loss: float) -> None:
        """Adds the end of a round and its loss, and warns if a growth has begun.

        Raises TrainingDiverged if the loss or a head is not finite.
        """
        if not math.isfinite(loss):
            raise self.blame(SERVER, f"the loss is {loss}", round, _LOSS)
        self._loss.add(round, loss)
        self._enter_ahead(round)
        self._enter_heads(round)
        self._done = round
        self._warn(round)

    def blame(self, member: str, said: str, round: int, stage: int = _RECEIVED) -> TrainingDiverged:
        """The error for a number of `member` that is not finite; it names the member where growth began."""
        return self._blame(Onset(round, stage, -math.inf, member, said), round)

    def _blame(self, here: Onset, round: int) -> TrainingDiverged:
        self._enter_ahead()
        causes = sorted([*self._onsets(), *self._apart(), here])
        first = causes[0]
        together = [one.member for one in causes if (one.since, one.stage) == (first.since, first.stage)]
        members = tuple(dict.fromkeys(together))
        others = {one.member: one for one in reversed(causes) if one.member not in together}
        then = "".join(f"; then {one.member}: {one.what}" for one in sorted(others.values())[:2])
        alike = f" (and {_genitives(members[1:])})" if members[1:] else ""
        return TrainingDiverged(
            first.member, f"diverged by round {round}: {first.what}{alike}{then}", round,
            members=members, shared=f"{DIVERGED} by round {round}, at first at {', '.join(members)}",
        )  # fmt: skip

    def blame_sender(self, party: str) -> TrainingDiverged:
        """The error for a party that stopped by itself because its next message would not be finite."""
        return self.blame(party, "its next message is not finite", self._done + 1)

    def blame_loss(self, loss: float) -> TrainingDiverged:
        """The error for a loss, or a difference of losses, that is not finite."""
        return self.blame(SERVER, f"the loss is {loss}", self._round, _LOSS)

    def diverged(self, round: int) -> TrainingDiverged:
        return self._blame(Onset(self._loss.since or round, _LOSS, -math.inf, SERVER, self._loss_words()), round)

    def _enter(self, message: Message, member: str, stage: int, party: str) -> None:
        kind, self._round = type(message).__name__, max(self._round, message.round)
        if not self._norms:
            self._enter_heads(message.round - 1)  # before the first step
        for name, norm in self._measured(message).items():
            if not math.isfinite(norm):
                raise self.blame(member, self._not_finite(message, name, member), message.round, stage)
            if kind != _UNWATCHED:
                key = (member, stage, f"{kind}.{name}", party)
                if message.round > self._done:
                    self._ahead.append((message.round, key, norm))
                else:  # sent after its round, as VFedMH's predictions are
                    self._norm_of(key).add(message.round, norm)

    def _enter_ahead(self, round: int | None = None) -> None:
        """Adds norms of messages up to this round, or all: delays decide which of the next round's have arrived."""
        waiting = [] if round is None else [entry for entry in self._ahead if entry[0] > round]
        for of, key, norm in self._ahead:
            if round is None or of <= round:
                self._norm_of(key).add(of, norm)
        self._ahead = waiting

    def _measured(self, message: Message) -> dict[str, float]:
        """Norms by field; a broadcast message is measured once."""
        if self._last[0] is not message:
            fields = self._fields.get(type(message))
            if fields is None:
                fields = self._fields[type(message)] = _watched(type(message))
            self._last = (message, {name: _norm(getattr(message, name)) for name in fields})
        return self._last[1]

    def _not_finite(self, message: Message, name: str, member: str) -> str:
        value, kind = getattr(message, name), type(message).__name__
        way = "it sent" if member != SERVER else "its"
        if isinstance(value, Tensor):
            wrong = int((~torch.isfinite(value)).sum())
            return f"{way} {kind}.{name}: expected finite numbers, got {wrong} of {value.numel()} not finite"
        return f"{way} {kind}.{name}: expected a finite number, got {value}"

    def _enter_heads(self, round: int) -> None:
        for name in _HEADS:
            if name in self._state:
                norm = _norm_of_model(self._state[name])
                if not math.isfinite(norm):
                    raise self.blame(SERVER, f"its {name} is not finite", round, _HEAD)
                self._norm_of((SERVER, _HEAD, name, "")).add(round, norm)

    def _norm_of(self, key: _Key) -> NormGrowth:
        if key not in self._norms:
            kept = self._kept_norms | {_text(key): {}}
            self._kept_norms.clear()  # sorted, so that the order of arrival does not matter
            self._kept_norms.update(sorted(kept.items()))
            self._norms[key] = NormGrowth(self._kept_norms[_text(key)])
        return self._norms[key]

    def _party_norms(self) -> Iterator[NormGrowth]:
        """Growing norms that a warning may name; gradients vary too much for it."""
        return (norm for key, norm in self._norms.items() if norm.since and key[1] in (_RECEIVED, _HEAD))

    def _warn(self, round: int) -> None:
        exploded = self._loss.rounds > 0 or any(norm.exploded for norm in self._party_norms())
        if not exploded:
            self._warning["given"] = self._warned and (bool(self._loss.since) or any(self._party_norms()))
            return
        if self._warned:
            return
        self._warning["given"] = True
        first = min(onset for onset in (*self._onsets(), *self._apart()) if onset.stage != _SENT)
        loss = f"; {self._loss_words()}" if self._loss.since and first.stage != _LOSS else ""
        self._telemetry.event(
            "warning", party=first.member, reason=f"{first.what}{loss}: training may diverge", round=round,
            grows=re.split(" (?:has|is) ", first.what)[0], factor=_rounded(-first.less), since=first.since,
        )  # fmt: skip

    def _onsets(self) -> Iterator[Onset]:
        for (member, stage, name, _), norm in self._norms.items():
            since, factor = norm.last if stage == _RECEIVED else (norm.since, norm.now)
            if since and factor >= _BLAMED:
                what = f"its {name} has grown {_rounded(factor):g} times since round {since}"
                yield Onset(since, stage, -factor, member, what)
        if self._loss.rounds:
            factor = self._loss.now / self._loss.best if self._loss.best > 0 else math.inf
            yield Onset(self._loss.since, _LOSS, -factor, SERVER, self._loss_words())

    def _apart(self) -> Iterator[Onset]:
        """Norms of this round far above every other party's: a party's first message has no history to compare with."""
        newest: dict[str, dict[str, float]] = {}
        for (member, stage, name, _), norm in self._norms.items():
            if stage == _RECEIVED:
                newest.setdefault(name, {})[member] = norm.newest
        for name, norms in newest.items():
            for member, own in norms.items():
                others = max((other for party, other in norms.items() if party != member), default=0.0)
                if others and own >= _APART * others:
                    what = f"its {name} is {_rounded(own / others):g} times as large as any other party's"
                    yield Onset(self._round, _RECEIVED, -own / others, member, what)

    def _loss_words(self) -> str:
        loss = self._loss
        return f"the loss has grown from {loss.best:.3g} to {loss.now:.3g} (medians of 5) since round {loss.since}"


def _text(key: _Key) -> str:
    return json.dumps(key)


def _key(text: str) -> _Key:
    member, stage, name, party = json.loads(text)
    return member, stage, name, party


def _watched(kind: type[Message]) -> tuple[str, ...]:
    return tuple(
        name for name, spec in schema(kind).items() if spec is float or (isinstance(spec, TensorSpec) and spec.floating)
    )


def _norm(value: Tensor | float) -> float:
    """Root mean square of all entries; not finite if and only if an entry is not."""
    if not isinstance(value, Tensor):
        return abs(value)
    if not value.numel():
        return 0.0
    norm = float(torch.linalg.vector_norm(value.detach())) / math.sqrt(value.numel())
    if math.isfinite(norm) or not bool(torch.isfinite(value).all()):
        return norm
    return float(value.detach().abs().max())  # the squares overflowed


def _norm_of_model(model: Any) -> float:
    if isinstance(model, nn.Module):
        found = [parameter.detach() for parameter in model.parameters()]
        return _norm(torch.stack(torch._foreach_norm(found))) if found else 0.0
    return _norm(model) if isinstance(model, Tensor) else 0.0


def _genitives(members: tuple[str, ...]) -> str:
    """`party1's and party2's`; at most three names."""
    named = [f"{member}'s" for member in members[:3]] + (["others'"] if members[3:] else [])
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))


def _rounded(factor: float) -> float:
    return float(f"{factor:.2g}") if math.isfinite(factor) else factor
