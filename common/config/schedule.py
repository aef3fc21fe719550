"""What happens when: rounds, batches and evaluations, derived alike at the server and at every party."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import local_steps
from colonnade.common.data.rows import Batches, generator, partition
from colonnade.common.privacy.accounting.plan import AnyPrivacyConfig, PrivacyPlan, plan
from colonnade.common.privacy.adaptive import AdaptivePrivacyConfig, release_cost

_EVALUATED = ("validation", "test")


class Schedule:
    """The timetable of a federation.

    Args:
        federation: the agreed section.
        rows: of the aligned data.
        official_test: how many of the last rows are the source's own test part.

    Attributes:
        rounds: how many there are, counted from 1: as many as asked for, or as the privacy budget pays for.
        partition: row numbers of the training, validation and test parts.
        privacy: what the agreed privacy comes to; None without any.

    Raises:
        ConfigError: the privacy budget pays for no round.
    """

    def __init__(self, federation: FederationConfig, rows: int, official_test: int) -> None:
        self.partition = partition(rows, official_test, federation.rows, federation.seed)
        self._batches = Batches(len(self.partition.train), federation.batch, federation.seed, federation.shuffle)
        self.rounds = federation.rounds or federation.epochs * self._batches.per_epoch
        self._every = federation.evaluate.every or self._batches.per_epoch
        self._tests = federation.stop is not None or federation.evaluate.test == "always"
        self._block = federation.batch
        self._names, self._seed, self._steps = federation.names, federation.seed, local_steps(federation.protocol)
        self._share = max(1, round(federation.participation * len(self._names)))
        self.privacy: PrivacyPlan | None = None
        if federation.privacy is not None:
            count = self._counted(federation.privacy)
            self.privacy = plan(federation.privacy, rows, self.rounds, count, benchmark=federation.benchmark)
            self.rounds = self.privacy.rounds

    def batch(self, round: int) -> Tensor:
        """Row numbers of B(t), int64 (rows,)."""
        return self.partition.train[self._batches.of(round)]

    def participants(self, round: int) -> tuple[str, ...]:
        """The parties of a training round in the roster's order: all, or as large a share as was agreed, drawn anew."""
        names = self._names
        if self._share == len(names):
            return names
        draw = torch.randperm(len(names), generator=generator("participants", self._seed, round))
        return tuple(names[index] for index in sorted(draw[: self._share].tolist()))

    def epoch(self, round: int) -> float:
        """Epochs that are over after a round."""
        return round / self._batches.per_epoch

    def evaluations(self, round: int) -> tuple[str, ...]:
        """The parts to evaluate after a round: validation now and then, and the test rows at the very end.

        A run that may stop early does not know its end, and evaluates the test rows every time.
        """
        last = round == self.rounds
        due = last or round % self._every == 0
        wanted = zip(_EVALUATED, (due, due if self._tests else last), strict=True)
        return tuple(part for part, now in wanted if now and len(getattr(self.partition, part)))

    def evaluated_before(self, round: int) -> int:
        """The last round before this one after which something was evaluated; 0 if there was none."""
        before = (round - 1) // self._every * self._every
        return before if before and self.evaluations(before) else 0

    def evaluated_next(self, round: int) -> int:
        """The first round from this one on after which something is evaluated; beyond the last if there is none."""
        due = -(-round // self._every) * self._every
        for later in (due, self.rounds):
            if round <= later <= self.rounds and self.evaluations(later):
                return later
        return self.rounds + 1

    def blocks(self, part: str) -> tuple[Tensor, ...]:
        """Row numbers of a part, in blocks of at most a batch."""
        return torch.split(getattr(self.partition, part), self._block)

    def stage(self, round: int, part: str, block: int) -> int:
        """The number of a block among all that are evaluated after a round, from 1: the training batch is 0."""
        before = self.evaluations(round)[: self.evaluations(round).index(part)]
        return 1 + block + sum(len(self.blocks(earlier)) for earlier in before)

    def _counted(self, privacy: AnyPrivacyConfig) -> Callable[[int], int]:
        """What the privacy accounting counts, as a function of how many rounds there are."""
        evaluated = privacy.evaluate == "released"
        if privacy.adjacency == "row":
            assert isinstance(privacy, AdaptivePrivacyConfig)  # no other is about rows
            return partial(self._releases_of_a_row, each=release_cost(privacy, self._steps), evaluated=evaluated)
        return self._releases if evaluated else self._participations

    def _releases_of_a_row(self, rounds: int, *, each: float, evaluated: bool) -> int:
        """How often one row is released in a run of so many rounds, at most: rows of a part all alike.

        Args:
            each: what a release of a training row costs, steps included.
            evaluated: whether evaluations are releases.
        """
        epochs, validations = -(-rounds // self._batches.per_epoch), -(-rounds // self._every)
        training = math.ceil(round(epochs * each, 6))
        if not evaluated:
            return training
        validation, test = (int(len(getattr(self.partition, part)) > 0) for part in _EVALUATED)
        return max(training, validation * validations, test * (validations if self._tests else 1))

    def _releases(self, rounds: int) -> int:
        """How many matrices one party releases in a run of so many rounds, at most."""
        validations = -(-rounds // self._every)
        validation, test = (math.ceil(len(getattr(self.partition, part)) / self._block) for part in _EVALUATED)
        return self._participations(rounds) + validations * validation + (validations if self._tests else 1) * test

    def _participations(self, rounds: int) -> int:
        """How many training rounds the party has that is drawn most often."""
        if self._share == len(self._names):
            return rounds
        counts = Counter(name for round in range(1, rounds + 1) for name in self.participants(round))
        return max(counts.values(), default=0)
