"""Key agreement between parties: offers go to the server, the ring comes back, and every party confirms it.

    1   party k    a fresh public key, signed                                       -> server
    2   server     the ring: all offers                                             -> all
    3   party k    for every other party proofs that it holds the same ring, the key that it offered, and the same
                   rows in the same order                                           -> server
    4   server     the proofs that are for it                                       -> every party

A protocol whose parties exchange secrets declares these kinds among its messages; common/crypto/sealing.py uses the
keys.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from colonnade.common.crypto.sealing import KEY_BYTES, KEY_PROOF_BYTES, PROOF_BYTES
from colonnade.common.messaging.message import PartyMessage, ServerMessage, TensorSpec, message

_CERTIFICATE = 8192  # maximum bytes of a chain in PEM
_TOLD = 1024  # maximum bytes of what a party was told of its session, JSON
_SIGNATURE = 80  # bytes of ECDSA on P-256, DER

_BYTES = torch.uint8


@message
class KeyOffer(PartyMessage):
    """Party to server: a public key for one session of a run, with a certificate (PEM) and a signature, or neither.

    Args:
        key: X25519.
        certificate: PEM; empty on loopback without TLS.
        signature: ECDSA over party, key and told; empty likewise.
        told: what the server has told the party of the session, JSON.
    """

    key: Annotated[Tensor, TensorSpec("key", dtype=_BYTES, public="the public half of a key, drawn for the session")]
    certificate: Annotated[Tensor, TensorSpec("certificate", dtype=_BYTES, public="everybody's to read")]
    signature: Annotated[Tensor, TensorSpec("signature", dtype=_BYTES, public="over the public key")]
    told: Annotated[Tensor, TensorSpec("told", dtype=_BYTES, public="the server has said it")]


@message
class KeyRing(ServerMessage):
    """Server to party: all parties' offers in the roster's order, end to end, and the server's own certificate.

    Args:
        server: the server's certificate, PEM.
    """

    keys: Annotated[Tensor, TensorSpec("parties", "key", dtype=_BYTES)]
    certificates: Annotated[Tensor, TensorSpec("certificates", dtype=_BYTES)]
    certificate_lengths: Annotated[Tensor, TensorSpec("parties", dtype=torch.int64)]
    signatures: Annotated[Tensor, TensorSpec("signatures", dtype=_BYTES)]
    signature_lengths: Annotated[Tensor, TensorSpec("parties", dtype=torch.int64)]
    told: Annotated[Tensor, TensorSpec("all_told", dtype=_BYTES)]
    told_lengths: Annotated[Tensor, TensorSpec("parties", dtype=torch.int64)]
    server: Annotated[Tensor, TensorSpec("certificate", dtype=_BYTES)]


@message
class KeyProof(PartyMessage):
    """Party to server: for every party in the roster's order a proof, uint8 (parties, 64); zeros in its own place."""

    proofs: Annotated[Tensor, TensorSpec("parties", "key_proof", dtype=_BYTES, public="under keys of the session")]


@message
class KeyProofs(ServerMessage):
    """Server to party: the proofs that are for it, in the roster's order, uint8 (parties, 64).

    Args:
        proofs: zeros in its own place.
    """

    proofs: Annotated[Tensor, TensorSpec("parties", "key_proof", dtype=_BYTES)]


AGREEMENT = (KeyOffer, KeyRing, KeyProof, KeyProofs)
"""Message kinds that a contract adds to its own."""


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
