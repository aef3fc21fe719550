"""The joint model of released codes, and groups of classes for parties with fewer codes than classes.

**Naive Bayes.** EM estimates the codes' frequencies by class, as only noisy sets of codes are seen. A set S of codes is
w = e^epsilon times as likely if it contains the code (common/privacy/subsets.py), so up to a factor constant in the row

    P(S | class y) = sum_c P(c | y) w^[c in S].

The code is the missing data of Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM
algorithm" (1977). Where labels are noisy, the class is missing too: its posterior under the model replaces it.

**Groups.** Classes that one party confuses, another should separate. For a party whose encoder names c for rows of
class y with frequency P(c | y), a grouping g and the release's noise give P(code | y). The probability of confusing two
classes is at most half the product, over the parties, of their codes' Bhattacharyya coefficients (Bhattacharyya 1943;
Kailath 1967). A local search lowers the sum over all pairs of classes by moving or exchanging single classes, from the
fixed grouping and from random ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.common.privacy.codes import as_codes
from colonnade.server.training.context import ServerContext

_CERTAIN = 30.0  # epsilon used for codes without noise
_PRIOR = 0.5  # pseudo-count of every (class, code) cell


class Confusions:
    """P(code of party k | class), P(class) and all sets of training rows, in the state; `codes` is their number k."""

    def __init__(self, ctx: ServerContext, codes: int) -> None:
        self._ctx, parties, classes = ctx, len(ctx.federation.names), ctx.federation.outputs
        flat = lambda: torch.full((parties, classes, codes), 1 / codes, dtype=torch.float64)  # noqa: E731
        self.table: Tensor = ctx.state.keep("confusions", flat)
        self.prior: Tensor = ctx.state.keep(
            "class shares", lambda: torch.full((classes,), 1 / classes, dtype=torch.float64)
        )
        rows = len(ctx.labels)
        self._sets: Tensor = ctx.state.keep("sets", lambda: torch.zeros(parties, rows, codes, dtype=torch.uint8))
        self._trains = torch.zeros(rows, dtype=torch.bool)
        self._trains[ctx.schedule.partition.train.cpu()] = True

    def epsilon(self, rows: Tensor) -> Tensor:
        """Epsilon of the sets of these rows, float64 (rows, 1)."""
        plan = as_codes(self._ctx.schedule.privacy)
        if plan is None:
            return torch.full((len(rows), 1), _CERTAIN, dtype=torch.float64)
        rows = self._ctx.trained_as(rows.cpu())
        trains = (self._trains[rows] & (rows >= 0)).unsqueeze(1)
        return torch.where(trains, plan.training.epsilon, plan.held_out.epsilon).double()

    def add(self, sets: Sequence[Tensor], rows: Tensor) -> None:
        """Stores the parties' sets of training rows, (rows, codes) each; zeros where a party did not answer."""
        for place, found in enumerate(sets):
            if found.any():
                self._sets[place, rows.cpu()] = found.cpu().to(torch.uint8)

    @property
    def device(self) -> torch.device:
        """Device of the logits; the fit runs on the CPU."""
        return self._ctx.device

    def fit(self, iterations: int) -> None:
        """Continues EM over the training rows that have sets."""
        rows = self._sets.any(2).any(0).nonzero().flatten()
        if not len(rows):
            return
        sets, epsilon = self._sets[:, rows].double(), self.epsilon(rows)
        logits = self.log_likelihood(sets, epsilon) + self.prior.log()
        y = self._ctx.targets(rows.to(self._ctx.device), logits.to(self._ctx.device)).cpu()
        q = torch.nn.functional.one_hot(y, len(self.prior)).double() if y.dim() == 1 else y.double()
        self.prior.copy_((q.sum(0) + 1) / (len(rows) + len(self.prior)))
        for place, own in enumerate(sets):
            there = own.any(1)
            if there.any():
                weights = ((own[there] - 1) * epsilon[there]).exp()
                self.table[place].copy_(_codes_of_classes(self.table[place], weights, q[there], iterations))

    def log_likelihood(self, sets: Tensor, epsilon: Tensor) -> Tensor:
        """Log-likelihood of every class up to a constant per row, float64 (rows, classes).

        `sets` are in roster order, (parties, rows, codes), or means of such; zeros carry no information. `epsilon`:
        (rows, 1).
        """
        total = torch.zeros(sets.shape[1], len(self.prior), dtype=torch.float64)
        for own, table in zip(sets.double(), self.table, strict=True):
            total += (((own - 1) * epsilon).exp() @ table.T).log()
        return total


def _codes_of_classes(table: Tensor, weights: Tensor, q: Tensor, iterations: int) -> Tensor:
    """EM for one party's codes, from an initial P(code | class), float64 (classes, codes).

    `weights` are the likelihoods of a row's set under each code, up to a constant per row, (rows, codes); `q` the
    probability of each class, (rows, classes).
    """
    for _ in range(iterations):
        counts = table * ((q / (weights @ table.T)).T @ weights) + _PRIOR
        table = counts / counts.sum(1, keepdim=True)
    return table


class CodeJoint:
    """The joint model for some rows (numbers, int64 (rows,))."""

    def __init__(self, confusions: Confusions, rows: Tensor) -> None:
        self._confusions, self._rows = confusions, rows

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """The parties' sets in roster order, (rows, codes) each -> logits float32 (rows, classes)."""
        stacked = torch.stack([part.cpu() for part in parts])
        found = self._confusions.log_likelihood(stacked, self._confusions.epsilon(self._rows))
        logits = (found + self._confusions.prior.log()).float()
        return logits.to(self._confusions.device)

    def heads(self) -> None:
        """None: no weights apply to a party's part."""


_STARTS = 6
_SWEEPS = 50
_GAIN = 1e-9


class Grouping:
    """Searches for groupings of all parties into `codes` groups, fewer than the classes.

    Args:
        confusions: P(c | y) of every party, float64 (classes, classes) each.
        kept: P(released code | code), float64 (codes, codes).
    """

    def __init__(self, confusions: Sequence[Tensor], codes: int, kept: Tensor) -> None:
        self._confusions, self._codes, self._kept = confusions, codes, kept
        self._classes = len(confusions[0])

    def best(self, fixed: Sequence[Tensor], free: Sequence[int]) -> list[Tensor]:
        """Groupings of all parties, int64 (classes,) each, from `fixed`; only parties at indices `free` may change."""
        draws, found = random.Random(0), list[tuple[float, list[Tensor]]]()  # noqa: S311  # no secret
        for start in range(_STARTS):
            groups = [own.clone() for own in fixed]
            for place in free if start else ():
                groups[place] = torch.tensor(
                    draws.sample([c % self._codes for c in range(self._classes)], self._classes)
                )
            for _ in range(_SWEEPS):
                better = [self._improve(groups, place) for place in free]
                if not any(better):
                    break
            found.append((self.cost(groups), groups))
        return min(found, key=lambda each: each[0])[1]

    def cost(self, groups: Sequence[Tensor]) -> float:
        """The bound on confusions, up to a factor."""
        overlap = torch.ones(self._classes, self._classes, dtype=torch.float64)
        for place, own in enumerate(groups):
            overlap = overlap * self._overlap(place, own)
        return float(overlap.sum() - overlap.diagonal().sum())

    def _overlap(self, place: int, groups: Tensor) -> Tensor:
        member = torch.nn.functional.one_hot(groups, self._codes).double()
        roots = (self._confusions[place] @ member @ self._kept).sqrt()
        return roots @ roots.T

    def _improve(self, groups: list[Tensor], place: int) -> bool:
        """Moves and exchanges one party's classes while that lowers the bound; returns True if something changed."""
        others = torch.ones(self._classes, self._classes, dtype=torch.float64)
        for other, own in enumerate(groups):
            if other != place:
                others = others * self._overlap(other, own)
        others.fill_diagonal_(0)
        best, better = float((others * self._overlap(place, groups[place])).sum()), False
        for tried in self._neighbours(groups[place]):
            if (now := float((others * self._overlap(place, tried)).sum())) < best - _GAIN:
                groups[place], best, better = tried, now, True
        return better

    def _neighbours(self, groups: Tensor) -> list[Tensor]:
        """Groupings with one class moved to another group, or two classes exchanged."""
        found = []
        for c in range(self._classes):
            for group in range(self._codes):
                found.append(groups.clone().index_fill_(0, torch.tensor([c]), group))
            for other in range(c):
                swapped = groups.clone()
                swapped[[c, other]] = groups[[other, c]]
                found.append(swapped)
        return found


def frequencies(counts: Tensor) -> Tensor:
    """P(c | y) from noisy counts, int64 (classes, classes); every cell counts at least one row."""
    positive = counts.double().clamp(min=1)
    return positive / positive.sum(1, keepdim=True)


def kept_codes(codes: int, size: int, kept: float) -> Tensor:
    """P(released code | code) for sets of one code; a larger set counts as one of its codes, drawn at random.

    `kept` is the probability that the set contains the code.
    """
    right, wrong = kept / size, (1 - kept / size) / (codes - 1)
    return torch.full((codes, codes), wrong, dtype=torch.float64).fill_diagonal_(right)
