"""What a curious server sees of training: embeddings or blinded sums, and the gradients that it sent back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from colonnade.client.transcript.capture import Captured
from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.aggregation.messages import Masked
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import ModelConfig
from colonnade.common.config.optimisers import OptimiserConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import InputError
from colonnade.common.messaging.message import tensor_specs
from colonnade.common.models.build import bottom_model
from colonnade.common.privacy.sum_noise import ring
from colonnade_lab.attacks.run import AttackedRun

_STEPS = {"split", "split_avg", "vafl"}  # protocols in which a party takes one step for a gradient `dh`


@dataclass(frozen=True)
class Seen:
    """The exchange about one batch: embeddings or their sums, and the gradient at these if the server sent it back.

    `rows` are places among `Sight.rows`.
    """

    rows: Tensor
    said: Tensor
    gradient: Tensor | None


@dataclass(frozen=True)
class SeenMember:
    """What the server knows of a party whose embedding is in the messages: shapes and settings, but no weights."""

    name: str
    columns: int
    shape: tuple[int, ...]
    model: ModelConfig
    optimiser: OptimiserConfig


@dataclass(frozen=True)
class Sight:
    """Training messages in order about the columns of one party, or of all parties that are in a sum.

    Columns are in the order of `members`; `rows` are the numbers of the rows that were seen, int64 (n,) ascending.
    """

    members: tuple[SeenMember, ...]
    rows: Tensor
    seen: tuple[Seen, ...]
    width: int
    federation: FederationConfig
    base: Path

    @property
    def columns(self) -> int:
        """Numbers per row over all members."""
        return sum(member.columns for member in self.members)

    @property
    def blinded(self) -> bool:
        return len(self.members) > 1

    def first(self, rounds: int) -> Sight:
        return _sight(self, [(self.rows[one.rows], one.said, one.gradient) for one in self.seen[:rounds]])

    def models(self, starts: Sequence[torch.Generator]) -> list[nn.Module]:
        """Builds the members' models with first weights drawn from these generators."""
        return [
            bottom_model(f"parties.{one.name}", one.model, one.shape, self.width, start, self.base)
            for one, start in zip(self.members, starts, strict=True)
        ]

    def parts(self, x: Tensor) -> list[Tensor]:
        """Splits rows (n, columns) into every member's columns (n, *shape)."""
        split = torch.split(x, [member.columns for member in self.members], dim=-1)
        return [part.view(-1, *member.shape) for part, member in zip(split, self.members, strict=True)]

    def repeated(self) -> Tensor:
        """Returns the messages about each row side by side, as many as every row has, float64 (n, ...)."""
        times = torch.zeros(len(self.rows), dtype=torch.int64)
        blocks: list[Tensor] = []
        for one in self.seen:
            for number in torch.unique(times[one.rows]).tolist():
                if number == len(blocks):
                    blocks.append(torch.zeros(len(self.rows), self.width, dtype=torch.float64))
                here = times[one.rows] == number
                blocks[number][one.rows[here]] = one.said[here]
            times[one.rows] += 1
        return torch.cat(blocks[: int(times.min())], dim=1)


def views(run: AttackedRun, names: Sequence[str]) -> dict[str, Sight]:
    """What the server sees of each party by name, or of all together if sums are blinded."""
    protocol = run.config.federation.protocol
    if not protocol.blinded:
        return {name: _clear(run, name) for name in names}
    every = run.config.federation.names
    if set(names) != set(every):
        raise InputError("the server sees sums over all parties", hint="leave --party out, and capture at every party")
    return {"all": _sums(run, every)}


def _clear(run: AttackedRun, name: str) -> Sight:
    said: dict[int, tuple[Tensor, Tensor]] = {}
    gradients: dict[int, Tensor] = {}
    for one in run.training(name):
        message = one.message
        turn = getattr(message, "turn", message.round)
        _add_gradient(run, one, gradients)
        if one.way == "out" and turn > 0 and message.round not in said:
            for field, spec in tensor_specs(type(message)):
                values: Tensor = getattr(message, field)
                if spec.dims == ("rows", "width") and not hasattr(message, "part"):
                    said[message.round] = run.schedule.batch(turn), values.double()
                    break
    if not said:
        raise InputError(
            f"{name}: nothing of what it sent in training is an embedding with a line for every row",
            hint="take a run of a protocol that sends embeddings, or their blinded sums",
        )
    return _made(run, (name,), [(*said[round], gradients.get(round)) for round in sorted(said)])


def _sums(run: AttackedRun, names: Sequence[str]) -> Sight:
    federation = run.config.federation
    if federation.blinding.recovery != "none":
        raise InputError(
            f"federation.blinding.recovery = {federation.blinding.recovery}: keys that the server opened are in no "
            "party's capture", hint="take a run without recovery",
        )  # fmt: skip
    words: dict[int, list[Tensor]] = {}
    gradients: dict[int, Tensor] = {}
    for name in names:
        for one in run.training(name):
            message = one.message
            if isinstance(message, Masked) and message.stage == 0 and len(message.words):
                words.setdefault(message.round, []).append(message.words)
            _add_gradient(run, one, gradients)
    summed = ring(federation, run.schedule.privacy)
    seen = [
        (batch := run.schedule.batch(round), _decoded(summed, words[round])[: len(batch)], gradients.get(round))
        for round in sorted(words) if len(words[round]) == len(names)
    ]  # fmt: skip
    if not seen:
        raise InputError("no sum over all parties is in the captures", hint="capture at every party")
    return _made(run, names, seen)


def _add_gradient(run: AttackedRun, one: Captured, gradients: dict[int, Tensor]) -> None:
    if one.way == "in" and run.protocol in _STEPS and hasattr(one.message, "dh"):
        gradients[one.message.round] = one.message.dh.double() / getattr(one.message, "shared", 1)


def _decoded(summed: Ring, words: Sequence[Tensor]) -> Tensor:
    # The caller drops the last line of zeros, which shows that the masks cancel.
    return summed.decode(summed.total(torch.stack([one.view(summed.dtype) for one in words]))).double()


def _made(run: AttackedRun, names: Sequence[str], seen: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> Sight:
    federation, members = run.config.federation, []
    for name in names:
        own, shape = run.config.parties[name], run.columns(name).shape[1:]
        members.append(SeenMember(name, math.prod(shape), tuple(shape), own.model, own.optimiser))
    width = CONTRACTS[run.protocol].limits_of(federation)["width"]
    empty = Sight(tuple(members), torch.empty(0), (), width, federation, run.base)
    return _sight(empty, seen)


def _sight(like: Sight, seen: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> Sight:
    rows = torch.unique(torch.cat([batch for batch, _, _ in seen]))
    placed = tuple(Seen(torch.searchsorted(rows, batch), said, gradient) for batch, said, gradient in seen)
    return replace(like, rows=rows, seen=placed)
