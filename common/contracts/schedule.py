"""The schedule of rounds, batches and evaluations, derived identically at the server and at every party."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.privacy import PARTS, AnyPrivacyConfig, releases_of
from colonnade.common.data.rows import Batches, Partition, generator, partition
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.privacy.accounting.plan import PrivacyPlan, Span
from colonnade.common.privacy.codes import DiscretePlan
from colonnade.common.privacy.gaussian import GaussianPlan
from colonnade.common.privacy.rows import RowPlan
from colonnade.common.privacy.sum_noise import noisy_ring

PLANS: Mapping[str, type[PrivacyPlan]] = {"gaussian": GaussianPlan, "adaptive": RowPlan, "discrete": DiscretePlan}
"""The mechanisms of `federation.privacy` by name."""

_EVALUATED = ("validation", "test")
_PATIENCE_EPOCHS, _PATIENCE_SHARE = 10, 4  # of `patience: auto`: epochs, and the share of the run, one in so many


class Schedule:
    """The timetable of a federation.

    Args:
        federation: the agreed section.
        rows: number of aligned rows.
        official_test: number of last rows that are the source's own test part.
        parts: the partition; None for that of `federation.rows`.

    Attributes:
        rounds: number of rounds, counted from 1: as configured, or as the privacy budget allows.
        partition: row numbers of the training, validation and test parts.
        privacy: the resulting privacy accounting; None without privacy.
        training_cost: cost of a release of a training row, steps included, in parts of a release.

    Raises ConfigError if the privacy budget allows no round.
    """

    def __init__(
        self, federation: FederationConfig, rows: int, official_test: int, parts: Partition | None = None
    ) -> None:
        self.partition = parts or partition(rows, official_test, federation.rows, federation.seed)
        train = len(self.partition.train)
        batch = train if federation.protocol.full_batch else federation.batch
        self._batches = Batches(train, batch, federation.seed, federation.shuffle)
        self.rounds = federation.rounds or federation.epochs * self._batches.per_epoch
        self._every = federation.evaluate.every or self._batches.per_epoch
        self._tests = federation.stop is not None or federation.evaluate.test == "always"
        self._stop, self._block = federation.stop, federation.batch
        self._converges = federation.protocol.converges
        self._names, self._seed, self._steps = federation.names, federation.seed, federation.protocol.local_steps_taken
        self._share = max(1, round(federation.participation * len(self._names)))
        self.privacy: PrivacyPlan | None = None
        self.training_cost = PARTS
        if federation.privacy is not None:
            self.privacy = self._planned(federation, federation.privacy, rows)
            self.rounds = self.privacy.rounds

    @property
    def batches(self) -> int:
        """Number of batches in an epoch."""
        return self._batches.per_epoch

    def batch(self, round: int) -> Tensor:
        """Row numbers of B(t), int64 (rows,)."""
        return self.partition.train[self._batches.of(round)].long()

    @property
    def single_rows(self) -> tuple[str, ...]:
        """The parts, `training`, `validation` and `test`, of which a batch has one row."""
        rows, size = self._batches.rows, self._batches.batch
        trained = size == 1 or (rows % size == 1 and self.rounds >= self.batches)
        parts = [part for part in _EVALUATED if len(getattr(self.partition, part)) % self._block == 1 % self._block]
        return (*(["training"] if trained else []), *(part for part in parts if len(getattr(self.partition, part))))

    def participants(self, round: int) -> tuple[str, ...]:
        """The parties of a training round in the roster's order: all, or a new random sample of the agreed share."""
        names = self._names
        if self._share == len(names):
            return names
        draw = torch.randperm(len(names), generator=generator("participants", self._seed, round))
        return tuple(names[index] for index in sorted(draw[: self._share].tolist()))

    def epoch(self, round: int) -> float:
        """Number of epochs completed after a round."""
        return round / self._batches.per_epoch

    def end_at(self, round: int) -> None:
        """Makes a round the last one: the server's, when its model has converged."""
        self.rounds = round

    @property
    def patience(self) -> int | None:
        """Evaluations in a row without a new best before the run stops early; None if there is no end to them."""
        patience = None if self._stop is None else self._stop.patience
        if patience != "auto":
            return patience
        epochs, share = _PATIENCE_EPOCHS * self._batches.per_epoch, -(-self.rounds // _PATIENCE_SHARE)
        return -(-max(epochs, share) // self._every)

    @property
    def earliest_end(self) -> int:
        """The round before which the run cannot end: the last, unless it may stop early."""
        if self._converges:
            return 1
        if self._stop is None:
            return self.rounds
        if self._stop.drop is not None or (patience := self.patience) is None:
            return min(self._every, self.rounds)
        return min((1 + patience) * self._every, self.rounds)

    def evaluations(self, round: int) -> tuple[str, ...]:
        """The parts to evaluate after a round: validation at intervals, and the test rows after the last round.

        A run that may stop early does not know its last round, and evaluates the test rows every time.
        """
        last = round == self.rounds
        due = last or round % self._every == 0
        wanted = zip(_EVALUATED, (due, due if self._tests else last), strict=True)
        return tuple(part for part, now in wanted if now and len(getattr(self.partition, part)))

    def evaluated_before(self, round: int) -> int:
        """The last round before this one with an evaluation; 0 if there was none."""
        before = (round - 1) // self._every * self._every
        return before if before and self.evaluations(before) else 0

    def evaluated_next(self, round: int) -> int:
        """The first round from this one on with an evaluation; beyond the last if there is none."""
        due = -(-round // self._every) * self._every
        for later in (due, self.rounds):
            if round <= later <= self.rounds and self.evaluations(later):
                return later
        return self.rounds + 1

    def blocks(self, part: str) -> tuple[Tensor, ...]:
        """Row numbers of a part, in blocks of at most a batch."""
        return tuple(block.long() for block in torch.split(getattr(self.partition, part), self._block))

    def stage(self, round: int, part: str, block: int) -> int:
        """The number of a block among all that are evaluated after a round, from 1: the training batch is 0."""
        before = self.evaluations(round)[: self.evaluations(round).index(part)]
        return 1 + block + sum(map(self._blocks_of, before))

    def _planned(self, federation: FederationConfig, privacy: AnyPrivacyConfig, rows: int) -> PrivacyPlan:
        run = Span(
            rows, self.rounds, self._counted(privacy), self._steps, federation.fewest_summed, federation.benchmark,
            self.partition.train.long(), federation.protocol.encoder_draws, federation.outputs, len(federation.parties),
        )  # fmt: skip
        made = PLANS[privacy.mechanism].of(privacy, run)
        _refuse_coarse(federation, made)
        if privacy.adjacency == "row":
            return made
        counts = self._shares(made.rounds)
        evaluations = made.releases - max(counts.values())
        return replace(made, own={name: count + evaluations for name, count in counts.items()})

    def _counted(self, privacy: AnyPrivacyConfig) -> Callable[[int], int]:
        """The count that the privacy accounting uses, as a function of the number of rounds."""
        evaluated = privacy.evaluate == "released"
        if privacy.adjacency == "row":
            self.training_cost = privacy.training_cost(self._steps)
            return partial(self._releases_of_a_row, evaluated=evaluated)
        return self._releases if evaluated else self._participations

    def _releases_of_a_row(self, rounds: int, *, evaluated: bool) -> int:
        """Maximum number of releases of one row in a run of `rounds` rounds, equal for all rows of a part.

        Args:
            evaluated: True if evaluations are releases.
        """
        epochs, validations = -(-rounds // self._batches.per_epoch), -(-rounds // self._every)
        training = releases_of(epochs * self.training_cost)
        if not evaluated:
            return training
        validation, test = (int(len(getattr(self.partition, part)) > 0) for part in _EVALUATED)
        return max(training, validation * validations, test * (validations if self._tests else 1))

    def _releases(self, rounds: int) -> int:
        """Maximum number of matrices that one party releases in a run of `rounds` rounds."""
        validations = -(-rounds // self._every)
        validation, test = map(self._blocks_of, _EVALUATED)
        return self._participations(rounds) + validations * validation + (validations if self._tests else 1) * test

    def _blocks_of(self, part: str) -> int:
        return math.ceil(len(getattr(self.partition, part)) / self._block)

    def _participations(self, rounds: int) -> int:
        """Number of training rounds of the party that is drawn most often."""
        return max(self._shares(rounds).values())

    def _shares(self, rounds: int) -> dict[str, int]:
        """Training rounds of every party."""
        if self._share == len(self._names):
            return dict.fromkeys(self._names, rounds)
        counts = Counter(name for round in range(1, rounds + 1) for name in self.participants(round))
        return {name: counts[name] for name in self._names}


def _refuse_coarse(federation: FederationConfig, privacy: PrivacyPlan) -> None:
    """Refuses noise once if the ring's steps are too coarse for it. Raises ConfigError."""
    if privacy.config.once is None:
        return
    try:
        noisy_ring(privacy, federation.blinding.bound, len(federation.parties), federation.blinding.bits)
    except InputError as wrong:
        raise ConfigError(f"federation.blinding: {wrong}", hint=wrong.hint) from None
