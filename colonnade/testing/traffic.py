"""Faults in the messages of a run: kinds, tensors and sizes that the contract does not declare."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from colonnade.common.contracts.contract import Contract
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ColonnadeError
from colonnade.common.messaging.message import (
    SCALAR_ALLOWANCE,
    PartyMessage,
    check,
    dtype_name,
    payload_bytes,
    tensor_specs,
)
from colonnade.common.wire.codec import Codec, WireError
from colonnade.simulation.federation import Outcome
from colonnade.testing.differences import differing_field, message_name
from colonnade.testing.trial import Expected


def undeclared(contract: Contract[Any], run: Outcome, unused: tuple[str, ...]) -> Iterator[str]:
    """Faults in the kinds of the messages, and in their tensors' types and ranks."""
    limits = contract.limits_of(run.server.federation)
    for sender, to, message in run.messages:
        name, kind = message_name(message, sender, to), type(message)
        if contract.kinds.get(kind.__name__) is not kind:
            yield f"{name}: the contract declares {', '.join(contract.kinds) or 'no message'}"
            continue
        if isinstance(message, PartyMessage) == (sender == SERVER):
            yield f"{name}: a {'PartyMessage' if sender == SERVER else 'ServerMessage'}, from the other side"
        try:
            check(sender, message, limits)
        except ColonnadeError as wrong:
            yield f"{name}: {wrong}"
    silent = set(contract.kinds) - {type(message).__name__ for *_, message in run.messages}
    if more := sorted(silent - set(unused)):
        yield f"no run sent {', '.join(more)}: take it out of the contract, or name it in Expected(unused=...)"
    if sent := sorted(set(unused) - silent):
        yield f"Expected(unused=...) names {', '.join(sent)}, which is sent or not declared"


def other_sizes(contract: Contract[Any], run: Outcome, expected: Expected) -> Iterator[str]:
    """Dimensions that are neither at the contract's limit nor the rows of their round."""
    limits = contract.limits_of(run.server.federation)
    reached: Counter[str] = Counter()
    for sender, to, message in run.messages:
        rows = _row_counts(run, message.round)
        for field, spec in tensor_specs(type(message)):
            for dim, size in zip(spec.dims, getattr(message, field).shape, strict=True):
                reached[dim] = max(reached[dim], size)
                counted = size - 1 if dim == "lines" else size  # one more than the rows, of zeros
                if dim not in expected.free and size != limits[dim] and counted not in rows:
                    counts = ", ".join(map(str, sorted(rows)))
                    yield (
                        f"{message_name(message, sender, to)}: {field} has {dim} = {size}; the contract's limit is "
                        f"{limits[dim]}, and the rows of the round's blocks are {counts}. Correct `limits`, or name "
                        f"{dim} in Expected(free=...)"
                    )
    for dim, size in reached.items():
        if dim not in expected.free and size < limits[dim]:
            yield f"{dim} reached {size} of the contract's limit {limits[dim]}: lower it in `limits`; it bounds memory"


def other_bytes(contract: Contract[Any], run: Outcome) -> Iterator[str]:
    """Messages whose size on the wire does not follow from their shapes, or that change on the wire."""
    codec = Codec(contract.kinds)
    counted: dict[bool, int] = defaultdict(int)
    for sender, to, message in run.messages:
        name, kind = message_name(message, sender, to), type(message).__name__
        specs = tensor_specs(type(message))
        declared = sum(math.prod(getattr(message, field).shape) * spec.item_bytes for field, spec in specs)
        counted[sender == SERVER] += declared
        if payload_bytes(message) != declared:
            yield f"{name}: {payload_bytes(message)} bytes of tensors, its shapes say {declared}"
        try:
            encoded = b"".join(codec.encode(message))
            arrived = codec.decode(kind, memoryview(encoded))
        except (WireError, ValueError, TypeError, AttributeError) as wrong:
            yield f"{name}: it cannot travel: {wrong}"
            continue
        if field := differing_field(message, arrived):
            yield f"{name}: field {field} arrives as {_shown(getattr(arrived, field))}"
        if len(encoded) > declared + SCALAR_ALLOWANCE:
            yield (
                f"{name}: {len(encoded) - declared} bytes besides its tensors, at most {SCALAR_ALLOWANCE} are allowed: "
                "send long texts and lists as tensors"
            )
    ways = {"the parties": (run.payload[0], counted[False]), "the server": (run.payload[1], counted[True])}
    for way, (paid, sent) in ways.items():
        if paid != sent:
            yield f"{way} sent {sent} bytes of tensors by their messages' shapes, and the links counted {paid}"


def around_the_egress(run: Outcome) -> Iterator[str]:
    """Parties' messages that are missing in the ledger."""
    for party in run.clients:
        sent: dict[str, list[int]] = {}
        for sender, _to, message in run.messages:
            if sender == party:
                entry = sent.setdefault(type(message).__name__, [0, 0])
                entry[0] += 1
                entry[1] += payload_bytes(message)
        for kind in {**sent, **run.left[party]}:
            one, two = sent.get(kind, [0, 0]), run.left[party].get(kind, [0, 0])
            if one != two:
                yield f"{party} sent {one[0]} {kind} ({one[1]} bytes); its ledger has {two[0]} ({two[1]} bytes)"


def _row_counts(run: Outcome, round: int) -> set[int]:
    """Number of rows of a round's batch and of every evaluated block."""
    schedule = run.server.schedule
    blocks = [block for part in ("validation", "test") for block in schedule.blocks(part)]
    return {len(block) for block in blocks} | ({len(schedule.batch(round))} if round else set())


def _shown(value: object) -> str:
    return f"{dtype_name(value.dtype)} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
