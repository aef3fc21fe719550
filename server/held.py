"""Whether the labels are still those that a run was begun with: ids find rows by their order."""

from __future__ import annotations

import hashlib

import torch

from common.data.labels import Labels
from common.errors import DataError
from common.once import Once

_NAME = "labels"


def hold_labels(once: Once, labels: Labels) -> None:
    """Keeps a digest of the labels' ids and values on the server's disk. It can be guessed, and is never sent."""
    once.keep(_NAME, _digest(labels), {"rows": torch.tensor(len(labels.values))})


def refuse_other_labels(once: Once, labels: Labels) -> None:
    """Raises DataError if they are others than those that were held."""
    if (held := once.number(_NAME)) and held != _digest(labels):
        raise DataError(
            "server.labels has changed since the run was begun: its ids, its values or their order are others",
            hint="restore the table, by which ids find the parties' rows; or train on the one that is there now",
        )


def _digest(labels: Labels) -> str:
    digest = hashlib.sha256(labels.values.contiguous().numpy().tobytes())
    for id in labels.ids or ():
        digest.update(len(id).to_bytes(8) + id.encode(errors="surrogatepass"))
    return digest.hexdigest()
