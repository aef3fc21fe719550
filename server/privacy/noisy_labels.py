"""The noisy labels of a run on disk: drawn once, for all starts of the server."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from colonnade.common.config.label_privacy import LabelPrivacyConfig
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.labels import NoisyLabels, label_noise, noise_settings
from colonnade.common.run.durable import write_kept
from colonnade.common.run.run_folder import RunFolder

_ANEW = "begin a new run, which draws noise and spends epsilon anew"


class NoisyLabelFile:
    """File of a run's noisy labels. `begun` is True if the run has begun, so labels have been used already.

    It stores fingerprints of the labels and settings; the fingerprint of the true labels never leaves the server.
    """

    def __init__(self, folder: Path, *, begun: bool) -> None:
        self._path, self._begun = RunFolder(folder).noisy_labels, begun

    def get(
        self, config: LabelPrivacyConfig | None, labels: Tensor, rows: Tensor, classes: int, seed: int
    ) -> NoisyLabels | None:
        """The noisy labels, read or, at first, drawn; None if labels are not noised.

        Args:
            labels: class numbers of all rows, int64 (n,).
            rows: the training rows, int64 (m,).

        Raises CheckpointError if the run was begun with other labels or other settings.
        """
        there = self._path.exists()
        if config is None and not there:
            return None
        if config is None or (self._begun and not there):
            before, now = ("with", "without") if there else ("without", "with")
            raise CheckpointError(f"the run was begun {before} label privacy and cannot go on {now} it", hint=_ANEW)
        about = _about(config, labels, rows, classes)
        if there:
            drawn = self._read(about, config, (len(rows), classes))
        else:
            drawn = NoisyLabels.draw(labels[rows], classes, config, seed)
            self._write(drawn.values, about)
        return drawn.waiting(labels[rows], rows, config, seed, lambda values: self._write(values, about))

    def _read(self, about: dict[str, str], config: LabelPrivacyConfig, shape: tuple[int, int]) -> NoisyLabels:
        try:
            with safe_open(self._path, "pt") as file:
                found, values = dict(file.metadata() or {}), file.get_tensor("values")
            whole = found.pop("checksum") == checksum_of(values, found) and about.keys() <= found.keys()
            whole = whole and values.dtype == torch.float64 and bool(values.isfinite().all())
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
            whole = False
        if not whole:
            raise CheckpointError(f"{self._path} is torn or was altered", hint=_ANEW)
        for what, wanted in about.items():
            if found[what] != wanted:
                raise CheckpointError(f"{self._path} was drawn for other {what}", hint=f"restore them, or {_ANEW}")
        if values.shape != shape:  # the checksum covers bytes, not the shape
            raise CheckpointError(f"{self._path} was altered: it is of shape {tuple(values.shape)}", hint=_ANEW)
        return NoisyLabels(values, label_noise(config, shape[1]), config.seeded)

    def _write(self, values: Tensor, about: dict[str, str]) -> None:
        record = {**about, "checksum": checksum_of(values, about)}
        write_kept(self._path, safetensors.torch.save({"values": values}, record), 0o600)


def _about(config: LabelPrivacyConfig, labels: Tensor, rows: Tensor, classes: int) -> dict[str, str]:
    """Fingerprints of the training labels and of the noise settings."""
    named = labels[rows].cpu().numpy().tobytes() + rows.cpu().numpy().tobytes()
    settings = json.dumps(noise_settings(config, classes))
    return {"labels": hashlib.sha256(named).hexdigest(), "settings": settings}


def checksum_of(values: Tensor, record: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
    digest.update(values.numpy().tobytes())
    return digest.hexdigest()
