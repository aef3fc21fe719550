"""What happens when: rounds, batches and evaluations, derived alike at the server and at every party."""

from __future__ import annotations

import torch
from torch import Tensor

from common.config import FederationConfig
from common.data.rows import Batches, partition


class Schedule:
    """The timetable of a federation.

    Args:
        federation: the agreed section.
        rows: of the aligned data.
        official_test: how many of the last rows are the source's own test part.

    Attributes:
        rounds: how many there are, counted from 1.
        partition: row numbers of the training, validation and test parts.
    """

    def __init__(self, federation: FederationConfig, rows: int, official_test: int) -> None:
        self.partition = partition(rows, official_test, federation.rows, federation.seed)
        self._batches = Batches(len(self.partition.train), federation.batch, federation.seed, federation.shuffle)
        self.rounds = federation.rounds or federation.epochs * self._batches.per_epoch
        self._every = federation.evaluate.every or self._batches.per_epoch
        self._block = federation.batch

    def batch(self, round: int) -> Tensor:
        """Row numbers of B(t), int64 (rows,)."""
        return self.partition.train[self._batches.of(round)]

    def epoch(self, round: int) -> float:
        """Epochs that are over after a round."""
        return round / self._batches.per_epoch

    def evaluations(self, round: int) -> tuple[str, ...]:
        """The parts to evaluate after a round: validation now and then, and the test rows at the very end."""
        last = round == self.rounds
        due = last or round % self._every == 0
        wanted = (("validation", due), ("test", last))
        return tuple(part for part, now in wanted if now and len(getattr(self.partition, part)))

    def evaluated_before(self, round: int) -> int:
        """The last round before this one after which something was evaluated; 0 if there was none."""
        return next((earlier for earlier in range(round - 1, 0, -1) if self.evaluations(earlier)), 0)

    def evaluated_next(self, round: int) -> int:
        """The first round from this one on after which something is evaluated; beyond the last if there is none."""
        return next((later for later in range(round, self.rounds + 1) if self.evaluations(later)), self.rounds + 1)

    def blocks(self, part: str) -> tuple[Tensor, ...]:
        """Row numbers of a part, in blocks of at most a batch."""
        return torch.split(getattr(self.partition, part), self._block)
