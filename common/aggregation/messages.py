"""Messages of blinded sums and of what parties agree on for them: keys, sets, shares, words.

Agreement of keys, where parties exchange secrets: offers go to the server, the ring comes back, and every party
confirms it.

    1   party k    a fresh public key, signed                                       -> server
    2   server     the ring: all offers                                             -> all
    3   party k    for every other party proofs that it holds the same ring, the key that it offered, and the same
                   rows in the same order                                           -> server
    4   server     the proofs that are for it                                       -> every party

A protocol declares the kinds of `AGREEMENT` or `BLINDED` among its messages. confirmed_sets.py, masked_sums.py and
recovery.py explain the other kinds.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from colonnade.common.config.federation import FederationConfig
from colonnade.common.crypto.lengths import KEY_BYTES, KEY_PROOF_BYTES, PROOF_BYTES
from colonnade.common.messaging.fields import MaskedTensor, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

BLOCK = 32  # rounds whose shares are sent together
SECRETS = 2  # b and e, in this order
SHARE_BYTES = 32

_CERTIFICATE = 8192  # maximum bytes of a chain in PEM
_TOLD = 1024  # maximum bytes of what a party was told of its session, JSON
_SIGNATURE = 80  # bytes of ECDSA on P-256, DER


@message
class KeyOffer(PartyMessage):
    """Party to server: a public key for one session of a run, with a certificate (PEM) and a signature, or neither.

    Args:
        key: X25519.
        certificate: PEM; empty on loopback without TLS.
        signature: ECDSA over party, key and told; empty likewise.
        told: what the server has told the party of the session, JSON.
    """

    key: Annotated[Tensor, TensorSpec("key", dtype="uint8", public="the public half of a key, drawn for the session")]
    certificate: Annotated[Tensor, TensorSpec("certificate", dtype="uint8", public="everybody's to read")]
    signature: Annotated[Tensor, TensorSpec("signature", dtype="uint8", public="over the public key")]
    told: Annotated[Tensor, TensorSpec("told", dtype="uint8", public="the server has said it")]


@message
class KeyRing(ServerMessage):
    """Server to party: all parties' offers, concatenated in the roster's order, and the server's certificate (PEM)."""

    keys: Annotated[Tensor, TensorSpec("parties", "key", dtype="uint8")]
    certificates: Annotated[Tensor, TensorSpec("certificates", dtype="uint8")]
    certificate_lengths: Annotated[Tensor, TensorSpec("parties", dtype="int64")]
    signatures: Annotated[Tensor, TensorSpec("signatures", dtype="uint8")]
    signature_lengths: Annotated[Tensor, TensorSpec("parties", dtype="int64")]
    told: Annotated[Tensor, TensorSpec("all_told", dtype="uint8")]
    told_lengths: Annotated[Tensor, TensorSpec("parties", dtype="int64")]
    server: Annotated[Tensor, TensorSpec("certificate", dtype="uint8")]


@message
class KeyProof(PartyMessage):
    """Party to server: for every party in the roster's order a proof, uint8 (parties, 64); zeros in its own place."""

    proofs: Annotated[Tensor, TensorSpec("parties", "key_proof", dtype="uint8", public="under keys of the session")]


@message
class KeyProofs(ServerMessage):
    """Server to party: the proofs for it, in the roster's order, uint8 (parties, 64); zeros in its own place."""

    proofs: Annotated[Tensor, TensorSpec("parties", "key_proof", dtype="uint8")]


AGREEMENT = (KeyOffer, KeyRing, KeyProof, KeyProofs)  # message kinds that a contract adds to its own


def agreement_limits(parties: int) -> dict[str, int]:
    return {
        "parties": parties,
        "key": KEY_BYTES,
        "certificate": _CERTIFICATE,
        "certificates": parties * _CERTIFICATE,
        "signature": _SIGNATURE,
        "signatures": parties * _SIGNATURE,
        "told": _TOLD,
        "all_told": parties * _TOLD,
        "proof": PROOF_BYTES,
        "key_proof": KEY_PROOF_BYTES,
    }


@message
class SetProof(PartyMessage):
    """Party to server: a proof for every party in the roster's order, uint8 (parties, 32); zeros where none is due.

    No proofs at all: the party does not take part in the round, which it has entered over another set before.

    Args:
        stage: within the round: 0 in training; in FedVS 1 for the evaluations after it.
    """

    stage: int
    proofs: Annotated[Tensor, TensorSpec("parties", "proof", dtype="uint8", public="over a set that the server named")]


@message
class SetProofs(ServerMessage):
    """Server to party: the proofs for it, in the roster's order, uint8 (parties, 32); zeros where there is none."""

    stage: int
    proofs: Annotated[Tensor, TensorSpec("parties", "proof", dtype="uint8")]


@message
class SealedShares(PartyMessage):
    """Party to server: shares of its secrets of 32 rounds, of which `round` is the first, and its keys under them.

    Args:
        shares: shares of b and e of every round, for every party in roster order, each under a pad.
        pair_keys: keys of every round with every party, under e; zeros in its own place.
    """

    shares: Annotated[
        Tensor,
        TensorSpec("dealt", "secrets", "parties", "share", dtype="uint8", public="shares of random keys, under pads"),
    ]
    pair_keys: Annotated[
        Tensor, TensorSpec("dealt", "parties", "share", dtype="uint8", public="random keys, under another")
    ]


@message
class Arrived(ServerMessage):
    """Server to party: U, the parties whose words have arrived, uint8 (parties,) in the roster's order, 1 for members.

    Sent again, with a smaller set, if a party vanishes before it has confirmed the set.
    """

    members: Annotated[Tensor, TensorSpec("parties", dtype="uint8")]


@message
class OpenedShares(PartyMessage):
    """Party to server: the pads of its shares of b of the parties in U, and of e of the others in the round.

    Args:
        pads: uint8 (parties, 32) in the roster's order; zeros for parties outside the round.
    """

    pads: Annotated[
        Tensor, TensorSpec("parties", "share", dtype="uint8", public="opens a share of a random key, of one round")
    ]


RECOVERY = (SealedShares, Arrived, OpenedShares)

RECOVERY_LIMITS = {"dealt": BLOCK, "secrets": SECRETS, "share": SHARE_BYTES}
"""Maximum sizes of their dimensions besides the parties."""


@message
class Members(ServerMessage):
    """Server to party: S, the parties in this round's sum, uint8 (parties,) in the roster's order, 1 for members."""

    alike: ClassVar[Alike | None] = Alike(("members",))

    members: Annotated[Tensor, TensorSpec("parties", dtype="uint8")]


@message
class Masked(PartyMessage):
    """Party to server: [v_k], int32 (rows + 1, words): words of 64 bits as two of 32, the lower one first.

    The last line masks zeros: in the sum it shows whether all masks cancel. No lines at all: the party does not take
    part in the round, which it has entered over another set before.

    Args:
        stage: 0: the training batch; then the blocks of validation and test rows in order.
        words: modulo 2^32; words of 64 bits as two, the lower one first.
    """

    stage: int
    words: Annotated[MaskedTensor, TensorSpec("lines", "words", dtype="int32")]


BLINDED = (*AGREEMENT, Members, SetProof, SetProofs, Masked, *RECOVERY)  # message kinds that a contract adds to its own


def blinded_limits(federation: FederationConfig, rows: int, width: int) -> dict[str, int]:
    """Maximum sizes of these messages' dimensions, for a sum of `rows` rows of `width` numbers."""
    own = {"lines": rows + 1, "words": words(federation, width)}
    return {**agreement_limits(len(federation.parties)), **RECOVERY_LIMITS, **own}


def words(federation: FederationConfig, width: int) -> int:
    """Number of 32-bit words for a row of `width` numbers."""
    return width * federation.blinding.bits // 32
