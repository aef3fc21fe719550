"""Check that the labels are those that the run began with: ids find rows by their order."""

from __future__ import annotations

import hashlib

import torch

from colonnade.common.checkpointing.run_cache import RunCache
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError

_NAME = "labels"


def hold_labels(run_cache: RunCache, digest: str) -> None:
    """Keeps the digest of a run's labels on the server's disk. It can be guessed, and is never sent."""
    run_cache.keep(_NAME, digest, {"format": torch.tensor(1)})


def refuse_other_labels(run_cache: RunCache, labels: LabelColumn) -> None:
    """Raises DataError if the labels differ from those of the kept digest."""
    if (held := run_cache.number(_NAME)) and held != digest_of(labels):
        raise DataError(
            "server.labels has changed since the run was begun: its ids, its values or their order are others",
            hint="restore the table, by which ids find the parties' rows, and server.labels.positive; or train "
            "on the one that is there now",
        )


def digest_of(labels: LabelColumn) -> str:
    """Digest over all values, ids and their order."""
    digest = hashlib.sha256(labels.values.contiguous().numpy().tobytes())
    for id in labels.ids or ():
        digest.update(len(id).to_bytes(8) + id.encode(errors="surrogatepass"))
    return digest.hexdigest()
