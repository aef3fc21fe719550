"""How parties come by keys of their own: offers that go to the server, and the ring that comes back.

A protocol whose parties have something to say to each other declares these two kinds among its
messages; `client/agreement.py` and `server/agreement.py` are the two sides, and what the keys are
good for is in common/crypto/sealing.py.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from common.crypto.sealing import KEY_BYTES
from common.message import Message, TensorSpec, message

_CERTIFICATE = 8192  # bytes of a chain in PEM, at most
_SIGNATURE = 80  # bytes of ECDSA on P-256, DER

_BYTES = torch.uint8


@message
class KeyOffer(Message):
    """Party to server: a public key for one session of a run, with a certificate (PEM) and a signature, or neither."""

    key: Annotated[Tensor, TensorSpec("key", dtype=_BYTES)]
    certificate: Annotated[Tensor, TensorSpec("certificate", dtype=_BYTES)]
    signature: Annotated[Tensor, TensorSpec("signature", dtype=_BYTES)]


@message
class KeyRing(Message):
    """Server to party: all parties' offers in the roster's order, end to end, and the server's own certificate."""

    keys: Annotated[Tensor, TensorSpec("parties", "key", dtype=_BYTES)]
    certificates: Annotated[Tensor, TensorSpec("certificates", dtype=_BYTES)]
    certificate_lengths: Annotated[Tensor, TensorSpec("parties", dtype=torch.int64)]
    signatures: Annotated[Tensor, TensorSpec("signatures", dtype=_BYTES)]
    signature_lengths: Annotated[Tensor, TensorSpec("parties", dtype=torch.int64)]
    server: Annotated[Tensor, TensorSpec("certificate", dtype=_BYTES)]


AGREEMENT = (KeyOffer, KeyRing)
"""What a contract adds to its messages."""


def agreement_limits(parties: int) -> dict[str, int]:
    """The largest values of the dimensions of these messages."""
    return {
        "parties": parties,
        "key": KEY_BYTES,
        "certificate": _CERTIFICATE,
        "certificates": parties * _CERTIFICATE,
        "signature": _SIGNATURE,
        "signatures": parties * _SIGNATURE,
    }
