"""What a sum is over: the rows and everything else that selects a party's contribution, as the party itself knows it.

The masks of a sum, the proofs of its set and the boxes of its shares are bound to this hash. If the server asks one
party for other rows than the rest, the masks do not cancel and the sum is noise, so that no two sums differ by one
party's values for rows of the server's choice. Each party computes the hash from its own requests; it never travels.

    training, evaluations   purpose, row numbers of the batch or block, from the agreed schedule
    predictions             purpose, row numbers and options of the request, and the previous request's hash

Row numbers mean the same rows at all parties: `rows_known` is in the keys of every pair (common/crypto/sealing.py).
"""

from __future__ import annotations

import json
from hashlib import sha256

import torch
from torch import Tensor

TRAINING, EVALUATION, PREDICTION = "training", "evaluation", "prediction"


def subject(purpose: str, rows: Tensor, *said: int | str, before: bytes = b"") -> bytes:
    """Hash of what a sum is over, 32 bytes.

    Args:
        rows: row numbers in the order of the summed matrix, int64 (rows,).
        said: everything else in the request that selects values.
        before: hash of the previous sum, where parties take part in all.
    """
    found = sha256(json.dumps(["colonnade sum", purpose, len(rows), before.hex(), *said]).encode())
    found.update(rows.detach().cpu().to(torch.int64).numpy().astype("<i8").tobytes())
    return found.digest()


def rows_known(purpose: str, count: int, official_test: int, keys: bytes = b"") -> str:
    """Hash of the rows that a member holds for one session of a run, hex.

    Args:
        official_test: number of last rows that are the source's own test part.
        keys: digest of the rows' keys in their common order; empty where rows are matched by their order.
    """
    return sha256(json.dumps(["colonnade rows", purpose, count, official_test, keys.hex()]).encode()).hexdigest()
