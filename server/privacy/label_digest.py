"""Check that the labels did not change since the run began: ids find rows by their order."""

from __future__ import annotations

import hashlib

import torch

from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError
from colonnade.common.run.run_cache import RunCache

_NAME = "labels"


def hold_labels(run_cache: RunCache, digest: str) -> None:
    """Stores the digest of a run's labels on the server's disk. Labels can be guessed from it, so it is never sent."""
    run_cache.keep(_NAME, digest, {"format": torch.tensor(1)})


def refuse_other_labels(run_cache: RunCache, labels: LabelColumn) -> None:
    """Raises DataError if the labels differ from the stored digest's."""
    if (held := run_cache.number(_NAME)) and held != digest_of(labels):
        raise DataError(
            "server.labels has changed since the run was begun: its ids, its values or their order are others",
            hint="restore the table, by which ids find the parties' rows, and server.labels.positive; or train "
            "on the one that is there now",
        )


def digest_of(labels: LabelColumn) -> str:
    digest = hashlib.sha256(labels.values.contiguous().numpy().tobytes())
    if labels.weights is not None:
        digest.update(labels.weights.contiguous().numpy().tobytes())
    for id in labels.ids or ():
        digest.update(len(id).to_bytes(8) + id.encode(errors="surrogatepass"))
    return digest.hexdigest()
