"""A party's released codes over all sessions: the draws of its rows, the encoder, and the budget that pays for both."""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor

from colonnade.client.privacy.kept_codes import KeptCodes
from colonnade.client.privacy.own_encoder import OwnEncoder
from colonnade.common.data.rows import generator
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.codes.release import CodeRelease, SeededSets
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.noise import secure_bytes, seeded_bytes, seeded_normals
from colonnade.common.run.kept_tensor import ANEW, read_tensor, write_tensor

DRAWS = ("training.safetensors", "held-out.safetensors")
"""Files of the rows' draws."""

_ENCODER = "encoder.safetensors"


class KeptCounts:
    """Noisy counts of the classes that the encoder names, drawn once: after training, before its weights are kept.

    Args:
        plan: of the run; without counts nothing is drawn.
        path: None keeps them in memory.
    """

    def __init__(self, plan: DiscretePlan, path: Path | None, bits: Bits) -> None:
        self._noise, self._path, self._bits = plan.counts, path, bits
        self._about = {"settings": json.dumps([len(plan.train), 0 if self._noise is None else self._noise.scale])}
        self._values: Tensor | None = None
        self._classes = plan.classes

    def draw(self, labels: Tensor, named: Tensor) -> None:
        """Draws and keeps the counts. Raises EnvironmentFault.

        A crash before the weights are kept leaves counts that never left the party: they are drawn anew with the
        encoder.
        """
        if self._noise is None:
            return
        self._values = self._noise.draw(labels, named, self._classes, self._bits)
        if self._path is not None:
            write_tensor(self._path, self._values, self._about)

    def get(self) -> Tensor:
        """The counts, int64 (classes, classes)."""
        if self._values is None and self._path is not None and self._path.exists():
            self._values = read_tensor(self._path, self._about)
        if self._values is None:
            raise CheckpointError("the counts of what the encoder names are missing", hint=ANEW)
        return self._values


class OwnCodes:
    """What a party releases under `mechanism: discrete`.

    Args:
        budget: of one release, which is the whole plan.
        folder: of codes and encoder; None keeps both in memory.
        later: number of rows, the last ones, that were added after training.

    Raises:
        CheckpointError: draws are missing although the budget was spent, are damaged, or have other settings.
    """

    def __init__(self, plan: DiscretePlan, budget: Budget, rows: int, folder: Path | None, later: int = 0) -> None:
        self._budget, begun, bits = budget, budget.releases > 0, secure_bytes()
        training, held_out, weights = (None if folder is None else folder / name for name in (*DRAWS, _ENCODER))
        first = KeptCodes(training, plan.training, rows, begun=begun, bits=bits, later=later)
        second = KeptCodes(held_out, plan.held_out, rows, begun=begun, bits=bits, later=later)
        self._kept = first, second
        self._counts = KeptCounts(plan, None if folder is None else folder / "counts.safetensors", bits)
        self.encoder = OwnEncoder(
            plan.encoder,
            weights,
            self._pay_first,
            lambda: any(bool(each.drawn.any()) for each in self._kept),
            self._counts.draw,
        )
        self.release = CodeRelease(plan, first, second, rows, self._pay, self._counts.get)

    def _pay_first(self) -> None:
        """Pays for the run, after creating the draws' files, so that their loss is noticed."""
        for each in self._kept:
            each.create()
        self._pay()

    def _pay(self) -> float:
        return self._budget.releases or self._budget.spend()


class SeededCodes:
    """The same for tests: draws follow from the federation's seed, spending is only counted, and nothing is kept."""

    def __init__(self, plan: DiscretePlan, budget: Budget, rows: int, seed: int, party: str) -> None:
        def bits(part: str, of: Tensor) -> Bits:
            return seeded_bytes(generator(part, seed, party, of.tolist()))

        pay = lambda: budget.releases or budget.spend()  # noqa: E731
        training = SeededSets(plan.training, lambda some: bits("training codes", some))
        held_out = SeededSets(plan.held_out, lambda some: bits("held-out codes", some))
        counts = KeptCounts(plan, None, seeded_bytes(generator("counts", seed, party)))
        self.encoder = OwnEncoder(
            plan.encoder,
            finish=counts.draw,
            normals=seeded_normals(generator("encoder noise", seed, party)),
            bits=seeded_bytes(generator("encoder", seed, party)),
        )
        self.release = CodeRelease(plan, training, held_out, rows, pay, counts.get)
