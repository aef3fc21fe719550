"""A party's encoder of codes: trained once in a run, and kept on the party's disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from colonnade.common.config.privacy import DiscretePrivacyConfig
from colonnade.common.data.draws import Draws
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.linear_encoder import LinearEncoder
from colonnade.common.privacy.noise import Normals, secure_normals, seeded_bytes
from colonnade.common.run.kept_tensor import ANEW, read_tensor, write_tensor

if TYPE_CHECKING:
    from colonnade.common.protocols.codes import Config


@dataclass(frozen=True)
class OwnEncoder:
    """Trains once: a second training would spend budget again, so only the kept weights are ever used.

    A training that a crash ends leaves nothing: it restarts at no further cost, as long as no code has left.

    Args:
        path: None keeps no weights.
        begin: pays for the training, durably.
        left: True if codes may have left.
        finish: called before the weights are kept, with the rows' classes and the named ones, int64 (rows,) each.
        bits: source of the draws of rows; None for the system's.
    """

    mechanism: SampledGaussian
    path: Path | None = None
    begin: Callable[[], None] = lambda: None
    left: Callable[[], bool] = lambda: False
    finish: Callable[[Tensor, Tensor], None] = lambda _labels, _named: None
    normals: Normals = secure_normals
    bits: Bits | None = None

    def train(self, inputs: Tensor, targets: Tensor, lr: float) -> Tensor:
        """Trains, or reads the kept weights. Returns float64 (inputs, classes).

        Args:
            inputs: of the training rows, float32 (rows, inputs).
            targets: a probability of every class, (rows, classes).

        Raises:
            CheckpointError: the weights are damaged, have other settings, or are missing although codes have left.
        """
        settings = [inputs.shape[1], targets.shape[1], self.mechanism.rate, self.mechanism.noise_multiplier]
        about = {"settings": json.dumps([*settings, self.mechanism.steps, lr])}
        if self.path is not None and self.path.exists():
            return read_tensor(self.path, about)
        if self.left():
            raise CheckpointError(f"{self.path} is missing, and codes that it made have left", hint=ANEW)
        self.begin()
        encoder = LinearEncoder(self.mechanism, DiscretePrivacyConfig.clip, lr)
        weights = encoder.train(inputs, targets, normals=self.normals, bits=self.bits)
        self.finish(targets.argmax(1), (inputs.double() @ weights).argmax(1))
        if self.path is not None:
            write_tensor(self.path, weights, about)
        return weights


def unprotected(train: Tensor, draws: Draws, config: Config) -> OwnEncoder:
    """The same steps without noise, where nothing is protected."""
    mechanism = SampledGaussian(min(1.0, config.drawn / len(train)), 1.0, config.steps)
    return OwnEncoder(
        mechanism,
        normals=lambda shape: torch.zeros(shape, dtype=torch.float64),
        bits=seeded_bytes(draws.generator("encoder")),
    )
