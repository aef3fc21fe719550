"""A party's released codes over all sessions: the draws of its rows, the encoder, and the budget that pays for both."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from colonnade.client.privacy.kept_codes import KeptCodes
from colonnade.client.privacy.own_encoder import OwnEncoder
from colonnade.common.data.rows import generator
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.codes.release import CodeRelease, SeededSets
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.noise import secure_bytes, seeded_bytes, seeded_normals


class OwnCodes:
    """What a party releases under `mechanism: discrete`.

    Args:
        plan: of the run.
        budget: of one release, which is the whole plan.
        rows: of the data.
        folder: of codes and encoder; None keeps both in memory.

    Attributes:
        encoder: trains once.
        release: the privacy stage.

    Raises:
        CheckpointError: draws are missing although the budget was spent, are damaged, or of other settings.
    """

    def __init__(self, plan: DiscretePlan, budget: Budget, rows: int, folder: Path | None) -> None:
        self._budget, begun, bits = budget, budget.releases > 0, secure_bytes()
        training, held_out, weights = (
            None if folder is None else folder / f"{name}.safetensors" for name in ("training", "held-out", "encoder")
        )
        first = KeptCodes(training, plan.training, rows, begun=begun, bits=bits)
        second = KeptCodes(held_out, plan.held_out, rows, begun=begun, bits=bits)
        self._kept = first, second
        self.encoder = OwnEncoder(
            plan.encoder, weights, self._pay_first, lambda: any(bool(each.drawn.any()) for each in self._kept)
        )
        self.release = CodeRelease(plan, first, second, rows, self._pay)

    def _pay_first(self) -> None:
        """Pays for the run. The files of the draws are there before, so that they are missed if they get lost."""
        for each in self._kept:
            each.create()
        self._pay()

    def _pay(self) -> float:
        return self._budget.releases or self._budget.spend()


class SeededCodes:
    """The same for tests: all draws follow from the federation's seed, and nothing is kept.

    Args:
        plan: of the run.
        budget: counted only.
        rows: of the data.
        seed: of the federation.
        party: its name.
    """

    def __init__(self, plan: DiscretePlan, budget: Budget, rows: int, seed: int, party: str) -> None:
        def bits(part: str, of: Tensor) -> Bits:
            return seeded_bytes(generator(part, seed, party, of.tolist()))

        pay = lambda: budget.releases or budget.spend()  # noqa: E731
        training = SeededSets(plan.training, lambda some: bits("training codes", some))
        held_out = SeededSets(plan.held_out, lambda some: bits("held-out codes", some))
        self.encoder = OwnEncoder(
            plan.encoder,
            normals=seeded_normals(generator("encoder noise", seed, party)),
            bits=seeded_bytes(generator("encoder", seed, party)),
        )
        self.release = CodeRelease(plan, training, held_out, rows, pay)
