"""A party's encoder of codes: trained once in a run, and kept on the party's disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from colonnade.client.privacy.kept_tensor import ANEW, read_tensor, write_tensor
from colonnade.common.data.draws import Draws
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.codes.settings import DiscretePrivacyConfig
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.linear_encoder import LinearEncoder
from colonnade.common.privacy.noise import Normals, secure_normals, seeded_bytes

if TYPE_CHECKING:
    from colonnade.common.protocols.codes import Config


@dataclass(frozen=True)
class OwnEncoder:
    """Trains once. Of two trainings both would count: only the kept weights are ever used.

    A training that a crash ends leaves nothing: it is begun anew at no further cost, as long as no code has left.

    Args:
        mechanism: DP-SGD.
        path: of the weights' file; None keeps none.
        begin: pays for the training, on the disk.
        left: True if codes may have left.
        finish: called before the weights are kept, with the rows' classes and the named ones, int64 (rows,) each.
        normals: source of the noise.
        bits: source of the draws of rows; the system's if None.
    """

    mechanism: SampledGaussian
    path: Path | None = None
    begin: Callable[[], None] = lambda: None
    left: Callable[[], bool] = lambda: False
    finish: Callable[[Tensor, Tensor], None] = lambda _labels, _named: None
    normals: Normals = secure_normals
    bits: Bits | None = None

    def train(self, inputs: Tensor, targets: Tensor, lr: float) -> Tensor:
        """The weights, read if they were trained before and trained if not.

        Args:
            inputs: of the training rows, float32 (rows, inputs).
            targets: a probability of every class, (rows, classes).
            lr: learning rate.

        Returns:
            float64 (inputs, classes).

        Raises:
            CheckpointError: the weights are damaged, of other settings, or gone although codes have left.
            EnvironmentFault: the disk refuses them.
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
    """The same steps without noise, where nothing is protected.

    Args:
        train: numbers of the training rows.
        draws: of the party's own, for the rows of the steps.
    """
    mechanism = SampledGaussian(min(1.0, config.drawn / len(train)), 1.0, config.steps)
    return OwnEncoder(
        mechanism,
        normals=lambda shape: torch.zeros(shape, dtype=torch.float64),
        bits=seeded_bytes(draws.generator("encoder")),
    )
