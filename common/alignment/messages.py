"""Messages of the alignment, in which members find their common rows. See docs/alignment.md.

A round here is one exchange, counted from 1 within the alignment: one block of every member's list.
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

BLOCK = 8192  # maximum keys of a message: 256 KiB of elements, a quarter of a second of exponentiations


_CERTIFICATE = 8192  # maximum bytes of a chain in PEM
_SIGNATURE = 80  # bytes of ECDSA on P-256, DER

_PLEDGED = 96  # bytes of a point and of a key for sealing
_PROVED = 128  # of two points
_BOX = 128  # bytes of a box beyond them: a proof, a nonce and a tag

DIGEST = 32

NONCE = 32  # bytes of the random number that every member contributes to the identity of an alignment


@message
class Held(PartyMessage):
    """Party to server, first message: the identity of the alignment that it keeps and would use again, "" for none.

    Args:
        nonce: its part of a new alignment's identity, and of the statement about a kept one.
    """

    identity: str
    nonce: Annotated[Tensor, TensorSpec("nonce", dtype=torch.uint8, public="random, drawn for this message")]


@message
class Offers(ServerMessage):
    """Server to party: the identity of the alignment that all members hold, "" if there is none: rows are aligned anew.

    Args:
        number: this run's or prediction's alignment, if a kept one is used.
        rows: number of rows of the kept alignment that are used. Unless it is all, their positions follow.
        others: keys of the server that the kept alignment lacks, and that are aligned next.
        nonces: all members', the server's first, then the parties' in roster order.
    """

    identity: str
    number: str
    rows: int
    others: int
    nonces: Annotated[Tensor, TensorSpec("members", "nonce", dtype=torch.uint8)]


@message
class Stated(PartyMessage):
    """Party to server, where a kept alignment is used: the party's signature that it holds it.

    Args:
        certificate: PEM; empty on loopback without TLS.
        signature: ECDSA over `statement`, which holds the random numbers of all members; empty likewise.
    """

    certificate: Annotated[Tensor, TensorSpec("certificate", dtype=torch.uint8, public="everybody's to read")]
    signature: Annotated[Tensor, TensorSpec("signature", dtype=torch.uint8, public="over identity and random numbers")]


@message
class Statements(ServerMessage):
    """Server to party: the members' `Stated` (the server's empty), concatenated in the roster's order."""

    certificates: Annotated[Tensor, TensorSpec("certificates", dtype=torch.uint8)]
    certificate_lengths: Annotated[Tensor, TensorSpec("members", dtype=torch.int64)]
    signatures: Annotated[Tensor, TensorSpec("signatures", dtype=torch.uint8)]
    signature_lengths: Annotated[Tensor, TensorSpec("members", dtype=torch.int64)]


@message
class Reused(PartyMessage):
    """Party to server: it uses this many rows of its kept alignment; if no others follow, they are on its disk."""

    identity: str
    rows: int


@message
class Census(PartyMessage):
    """Party to server: number of its keys."""

    rows: int


@message
class Sizes(ServerMessage):
    """Server to party: number of keys of every member, the server first, then the parties in the roster's order."""

    rows: Annotated[Tensor, TensorSpec("members", dtype=torch.int64)]


@message
class Pledge(PartyMessage):
    """Party to server: the party's signed digest of the list that it sends in the stage that follows.

    In the first stage one for every block of its own list, as it is raised: empty but for the last.

    Args:
        digest: hash over all elements in ascending order.
        certificate: PEM, in the first stage; empty on loopback without TLS.
        signature: ECDSA over `PledgeTerms.content`; empty likewise.
        keys: with proofs, in the first stage, what they and sealed lists refer to; else empty.
    """

    digest: Annotated[Tensor, TensorSpec("digest", dtype=torch.uint8, public="a hash of elements raised to a secret")]
    certificate: Annotated[Tensor, TensorSpec("certificate", dtype=torch.uint8, public="everybody's to read")]
    signature: Annotated[Tensor, TensorSpec("signature", dtype=torch.uint8, public="over a digest of raised elements")]
    keys: Annotated[Tensor, TensorSpec("pledged", dtype=torch.uint8, public="public keys, drawn for this alignment")]


@message
class Pledges(ServerMessage):
    """Server to party: the pledges of all members, the server first; empty until all have pledged themselves.

    Args:
        certificates, signatures: as in `Statements`.
        keys: with proofs, in the first stage, the parties' in roster order; else empty.
    """

    digests: Annotated[Tensor, TensorSpec("members", "digest", dtype=torch.uint8)]
    certificates: Annotated[Tensor, TensorSpec("certificates", dtype=torch.uint8)]
    certificate_lengths: Annotated[Tensor, TensorSpec("members", dtype=torch.int64)]
    signatures: Annotated[Tensor, TensorSpec("signatures", dtype=torch.uint8)]
    signature_lengths: Annotated[Tensor, TensorSpec("members", dtype=torch.int64)]
    keys: Annotated[Tensor, TensorSpec("parties", "pledged", dtype=torch.uint8)]


@message
class Proved(PartyMessage, ServerMessage):
    """A block of a list with a proof that it was raised to one exponent, in the place of `Points`.

    Args:
        box: sealed for the next party; from and to the server, its content. Empty in the last stage of the server.
    """

    box: Annotated[MaskedTensor, TensorSpec("box", dtype=torch.uint8)]


@message
class Points(PartyMessage, ServerMessage):
    """A block of a list of keys, hashed to the curve and raised to at least one secret; empty after the list's end.

    Party to server: from the list that it has raised and shuffled. Server to party: from the list to raise; empty in
    the last stage, where it requests the next block, so that lists are not queued.

    Args:
        points: u-coordinates on curve25519.
    """

    points: Annotated[MaskedTensor, TensorSpec("keys", "element", dtype=torch.uint8)]


@message
class Common(ServerMessage):
    """Server to party: number of keys that all members hold, and the number of this alignment."""

    rows: int
    number: str


@message
class Positions(PartyMessage, ServerMessage):
    """A block of positions of the common keys in a list, in the common order.

    Server to party: positions in the list as the party passed it on. Party to server: in the list as it received it;
    empty in the last stage, where the server requests the next block.
    """

    positions: Annotated[MaskedTensor, TensorSpec("keys", dtype=torch.int64)]


@message
class Kept(PartyMessage):
    """Party to server: the alignment is on the party's disk."""


@message
class Settled(ServerMessage):
    """Server to party: the alignment is on every member's disk."""


ALIGNMENT = (
    Held, Offers, Stated, Statements, Reused, Census, Sizes, Pledge, Pledges, Proved, Points, Common, Positions,
    Kept, Settled,
)  # fmt: skip
"""All messages allowed before the protocol's own."""


def alignment_kinds(federation: FederationConfig) -> Kinds:
    """The messages of the alignment by name; none if rows are already in the same order."""
    return {} if federation.align == "none" else {kind.__name__: kind for kind in ALIGNMENT}


def alignment_limits(members: int) -> dict[str, int]:
    return {
        "members": members,
        "keys": BLOCK,
        "element": ELEMENT,
        "nonce": NONCE,
        "digest": DIGEST,
        "pledged": _PLEDGED,
        "parties": members,
        "box": BLOCK * _PROVED + _BOX,
        "certificate": _CERTIFICATE,
        "certificates": members * _CERTIFICATE,
        "signature": _SIGNATURE,
        "signatures": members * _SIGNATURE,
    }


def all_kinds(federation: FederationConfig, contract: Contract[Any]) -> Kinds:
    """Every message of a run, of its contract and of the alignment, by name."""
    return {**contract.kinds, **alignment_kinds(federation)}


def all_limits(federation: FederationConfig, contract: Contract[Any]) -> Mapping[str, int]:
    """Maximum sizes of all their dimensions."""
    own = contract.limits_of(federation)
    return own if federation.align == "none" else {**own, **alignment_limits(len(federation.parties) + 1)}
