"""A run's labels on disk: a digest, and the noisy ones, drawn once for all starts of the server."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import CheckpointError, DataError
from colonnade.common.privacy.labels import NoisyLabels, label_noise, noise_settings
from colonnade.common.run.run_cache import RunCache, read_recorded, write_tensor
from colonnade.common.run.run_folder import RunFolder

_ANEW = "begin a new run, which draws noise and spends epsilon anew"


class NoisyLabelFile:
    """File of a run's noisy labels; without a folder they are kept in memory only.

    It stores fingerprints of the labels and settings; the fingerprint of the true labels never leaves the server.

    Args:
        begun: True if the run has begun, so labels have been used already.
    """

    def __init__(self, folder: Path | None, *, begun: bool) -> None:
        self._path, self._begun = None if folder is None else RunFolder(folder).noisy_labels, begun

    def get(
        self, config: LabelPrivacyConfig | None, labels: Tensor, rows: Tensor, classes: int, seed: int
    ) -> NoisyLabels | None:
        """The noisy labels, read or, at first, drawn; None if labels are not noised.

        Args:
            labels: class numbers of all rows, int64 (n,).
            rows: the training rows, whole numbers (m,).

        Raises CheckpointError if the run was begun with other labels or other settings.
        """
        path = self._path
        there = path is not None and path.exists()
        if config is None and not there:
            return None
        if config is None or (self._begun and not there):
            before, now = ("with", "without") if there else ("without", "with")
            raise CheckpointError(f"the run was begun {before} label privacy and cannot go on {now} it", hint=_ANEW)
        about = _about(config, labels, rows, classes)
        if path is not None and there:
            drawn = _read(path, about, config, (len(rows), classes))
        else:
            drawn = NoisyLabels.draw(labels[rows], classes, config, seed)
            self._write(drawn.values, about)
        return drawn.waiting(labels[rows], rows, config, seed, lambda values: self._write(values, about))

    def _write(self, values: Tensor, about: dict[str, str]) -> None:
        if self._path is not None:
            write_tensor(self._path, values, about)


def _read(path: Path, about: dict[str, str], config: LabelPrivacyConfig, shape: tuple[int, int]) -> NoisyLabels:
    values, found = read_recorded(path, _ANEW)
    if not about.keys() <= found.keys() or values.dtype != torch.float64 or not bool(values.isfinite().all()):
        raise CheckpointError(f"{path} is torn or was altered", hint=_ANEW)
    for what, wanted in about.items():
        if found[what] != wanted:
            raise CheckpointError(f"{path} was drawn for other {what}", hint=f"restore them, or {_ANEW}")
    if values.shape != shape:  # the checksum covers bytes, not the shape
        raise CheckpointError(f"{path} was altered: it is of shape {tuple(values.shape)}", hint=_ANEW)
    return NoisyLabels(values, label_noise(config, shape[1]), config.seeded)


def _about(config: LabelPrivacyConfig, labels: Tensor, rows: Tensor, classes: int) -> dict[str, str]:
    """Fingerprints of the training labels and of the noise settings; the same whichever type row numbers have."""
    named = labels[rows].cpu().numpy().tobytes() + rows.cpu().to(torch.int64).numpy().tobytes()
    settings = json.dumps(noise_settings(config, classes))
    return {"labels": hashlib.sha256(named).hexdigest(), "settings": settings}


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
