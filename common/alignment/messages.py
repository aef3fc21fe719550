"""Messages of the alignment, in which members find their common rows. See docs/alignment.md.

Rounds here are exchanges, counted from 1 in the alignment alone: one block of every member's list in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.messaging.message import Kinds, PartyMessage, ServerMessage, TensorSpec, message
from colonnade.common.messaging.outgoing import MaskedTensor

BLOCK = 8192
"""Keys that a message holds at most: 256 KiB of elements, a quarter of a second of exponentiations."""


@message
class Census(PartyMessage):
    """Party to server: number of its keys."""

    rows: int


@message
class Sizes(ServerMessage):
    """Server to party: number of keys of every member, the server first, then the parties in the roster's order."""

    rows: Annotated[Tensor, TensorSpec("members", dtype=torch.int64)]


@message
class Points(PartyMessage, ServerMessage):
    """A block of a list of keys, hashed to the curve and raised to at least one secret; empty after the list's end.

    Party to server: of the list that it has raised and shuffled. Server to party: of the list that it is to raise;
    empty in the last stage, where it requests the next block, so that lists are not queued.

    Args:
        points: u-coordinates on curve25519.
    """

    points: Annotated[MaskedTensor, TensorSpec("keys", "element", dtype=torch.uint8)]


@message
class Common(ServerMessage):
    """Server to party: number of common keys, and the number of this alignment.

    Args:
        rows: keys that all members hold.
    """

    rows: int
    number: str


@message
class Positions(PartyMessage, ServerMessage):
    """A block of positions of the common keys in a list, in the common order.

    Server to party: in the list as the party passed it on. Party to server: in the list as it received it; empty in the
    last stage, where it requests the next block.
    """

    positions: Annotated[MaskedTensor, TensorSpec("keys", dtype=torch.int64)]


@message
class Kept(PartyMessage):
    """Party to server: the alignment is on the party's disk."""


@message
class Settled(ServerMessage):
    """Server to party: the alignment is on every member's disk."""


ALIGNMENT = (Census, Sizes, Points, Common, Positions, Kept, Settled)
"""All messages allowed before the protocol's own."""


def alignment_kinds(federation: FederationConfig) -> Kinds:
    """The messages of the alignment by name; none if rows are already in the same order."""
    return {} if federation.align == "none" else {kind.__name__: kind for kind in ALIGNMENT}


def alignment_limits(members: int) -> dict[str, int]:
    """The largest values of the dimensions of these messages."""
    return {"members": members, "keys": BLOCK, "element": ELEMENT}


def all_kinds(federation: FederationConfig, contract: Contract[Any]) -> Kinds:
    """Every message of a run, of its contract and of the alignment, by name."""
    return {**contract.kinds, **alignment_kinds(federation)}


def all_limits(federation: FederationConfig, contract: Contract[Any]) -> Mapping[str, int]:
    """The largest values of all their dimensions."""
    own = contract.limits_of(federation)
    return own if federation.align == "none" else {**own, **alignment_limits(len(federation.parties) + 1)}
