"""What sums of the parties' scores reveal: columns to the server, and labels to a party from its own sums.

A server of `hetero_lr` sees the logits of every step's direction, summed over the parties unless they are in the clear:
T linear combinations of the encoded columns with unknown weights; in `additive`, of indicators of bins. With the
columns of some rows it regresses each column on them. Without any, it searches for independent components: columns of
words are far from normal. Once there are as many directions as columns, they span the columns.

A party sees M r of its own matrix M and all residuals r = p - y. In the first round p is the share of the class, which
makes M y whole numbers: M y is known. The likeliest labels by a model that is linear in its own columns are a function
of M y alone. Whole labels with these sums are found by linear programming, if there are few rows per sum.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog
from scipy.special import logit
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from torch import Tensor

from colonnade.client.protocols import LOCAL
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear import LinearColumns
from colonnade.client.training.shapes import ShapeSum
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.encryption.linear import PartyMatrix
from colonnade.common.encryption.parameters import ROWS_A_BIN
from colonnade.common.run.state import State
from colonnade.server.training.trees.gradients import TreeObjective
from colonnade.simulation.federation import Simulation
from colonnade_lab.attacks.bounds import area
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.attacks.sums import Floats, LabelsRead, scored

_OPEN, _BLIND = 0.99, 0.9
_STRENGTHS = np.logspace(-6, 3, 10)  # of a ridge on directions with a deviation of 1
_COMPONENTS = 3  # of residuals in all rounds
_INDEPENDENT_ROWS, _INDEPENDENT_STEPS = 20_000, 300
_SURE = 1e-4  # of a label's probability


@dataclass(frozen=True)
class ColumnsRead:
    """The server's guess of a party's columns. R2 are over rows that it does not know, at least 0.

    Args:
        columns: encoded columns that vary.
        directions: sums of scores of all rows that the server saw.
        known: rows whose columns it knows.
        span: mean R2 of the columns on the directions over all rows, the limit of linear guesses.
        found: mean R2.
        open: columns with an R2 of .99 or more.
        base: mean R2 of the same attacker without messages, with the labels alone.
        base_open: as `open`.
        blind: columns with a squared correlation of .9 or more with an independent component, which needs no known row.
            Components are assigned by the truth.
    """

    columns: int
    directions: int
    known: int
    span: float
    found: float
    open: int
    base: float
    base_open: int
    blind: int


class Replayed:
    """The run again in one process, with every member's state after each round.

    Attributes:
        labels: of the common rows, int64 (rows,).
        train: numbers of the training rows.
    """

    def __init__(self, run: AttackedRun) -> None:
        sample = run.sample if run.config.federation.align == "none" else None
        self._outcome = Simulation(run.config, run.base, save=True, sample=sample).run()
        self._config = run.config.federation
        self.labels = self._outcome.server.labels.cpu()
        self.train = self._outcome.server.schedule.partition.train.cpu().numpy()

    def directions(self, party: str) -> Floats:
        """The directions that the server saw for all common rows, (rows, directions), with a deviation of 1."""
        protocol, rows = self._config.protocol, torch.arange(len(self.labels))
        every = [np.zeros(1)]
        for snapshots in self._outcome.saved.values():
            if protocol.blinded and len(self._config.names) > 1:
                every.append(snapshots[SERVER].tensors["scores"].numpy())
            else:
                ctx = replace(self._outcome.clients[party], state=State(snapshots[party]))
                every.append(LOCAL[protocol.name](ctx, protocol).of_rows(ctx.features, rows).double().numpy())
        moved = np.concatenate([now - before for before, now in pairwise(every)], axis=1)
        spread = moved.std(axis=0)
        found: Floats = moved[:, spread > 0] / spread[spread > 0]
        return found

    def columns(self, party: str) -> Floats:
        """A party's varying columns for all common rows, (rows, columns)."""
        x = _COLUMNS[self._config.protocol.name](self._outcome.clients[party], torch.arange(len(self.labels)))
        return x[:, x.std(axis=0) > 0]

    def matrix(self, party: str) -> Floats:
        """A party's M', (training rows, lines)."""
        ctx = self._outcome.clients[party]
        return _dense(_MATRICES[self._config.protocol.name](ctx, ctx.schedule.partition.train))

    @cached_property
    def residuals(self) -> Floats:
        """The derivatives of the loss of each round, (training rows, rounds x scores)."""
        objective, found = TreeObjective(self._outcome.server), []
        for snapshots in self._outcome.saved.values():
            kept = snapshots[SERVER].tensors
            found.append(objective.derivatives((kept["start"] + kept["scores"]).numpy()[self.train])[0])
        return np.concatenate(found, axis=1)


@lru_cache(maxsize=1)
def replayed(run: AttackedRun) -> Replayed:
    """Simulates the run again, once for all its parties."""
    return Replayed(run)


def _encoded(ctx: ClientContext, rows: Tensor) -> Floats:
    x: Floats = ctx.features[rows].flatten(1).double().cpu().numpy()
    return x


def _design(ctx: ClientContext, _train: Tensor) -> PartyMatrix:
    return LinearColumns(ctx, 1.0, 1.0).matrix()  # restored from the state, with its penalty and curvature


def _points(ctx: ClientContext) -> ShapeSum:
    found = LOCAL[ctx.federation.protocol.name](ctx, ctx.federation.protocol)
    assert isinstance(found, ShapeSum)
    return found


def _bins(ctx: ClientContext, rows: Tensor) -> PartyMatrix:
    return _points(ctx).bins.one_hot(rows)


def _dense(m: PartyMatrix) -> Floats:
    found: Floats = m.rows(0, m.shape[1]).toarray().T.astype(np.float64)
    return found


_MATRICES: Mapping[str, Callable[[ClientContext, Tensor], PartyMatrix]] = {
    "hetero_lr": _design,
    "additive": _bins,
    "scorecard": _bins,  # its first sums are over fine bins
}
_COLUMNS: Mapping[str, Callable[[ClientContext, Tensor], Floats]] = {
    "hetero_lr": _encoded,
    "additive": lambda ctx, rows: _dense(_bins(ctx, rows)),
    "scorecard": lambda ctx, rows: _points(ctx).parts(rows)[:, :, 0],  # weights of evidence, in points
}


def read_columns(replayed: Replayed, party: str, known: float, seed: int) -> ColumnsRead:
    """Guesses a party's columns from the server's view and a share `known` of the rows."""
    seen, x, labels = replayed.directions(party), replayed.columns(party), replayed.labels.double().numpy()[:, None]
    have = np.zeros(len(x), bool)
    have[np.random.default_rng(seed).permutation(len(x))[: max(round(known * len(x)), 2)]] = True
    whole = np.c_[np.ones(len(x)), seen]
    span = _r2(whole @ np.linalg.lstsq(whole, x, rcond=None)[0], x)
    found, base = (_guessed(inputs, x, have) for inputs in (np.c_[seen, labels], labels))
    return ColumnsRead(
        columns=x.shape[1], directions=seen.shape[1], known=int(have.sum()), span=float(span.mean()),
        found=float(found.mean()), open=int((found >= _OPEN).sum()),
        base=float(base.mean()), base_open=int((base >= _OPEN).sum()), blind=_blind(seen, x, seed),
    )  # fmt: skip


def _guessed(inputs: Floats, x: Floats, have: NDArray[np.bool_]) -> Floats:
    """R2 of each column in the other rows, by guesses within the range of the known ones."""
    model = RidgeCV(alphas=_STRENGTHS, alpha_per_target=True).fit(inputs[have], x[have])
    guess = model.predict(inputs[~have]).reshape(-1, x.shape[1])
    return _r2(guess.clip(x[have].min(axis=0), x[have].max(axis=0)), x[~have])


def _r2(guess: Floats, x: Floats) -> Floats:
    error, spread = ((guess - x) ** 2).mean(axis=0), x.var(axis=0)
    found: Floats = np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1), 0.0)
    return found.clip(min=0)


def _blind(seen: Floats, x: Floats, seed: int) -> int:
    """Number of columns that an independent component of the directions nearly equals."""
    model = FastICA(whiten="unit-variance", max_iter=_INDEPENDENT_STEPS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        components = model.fit(seen[:_INDEPENDENT_ROWS]).transform(seen)
    between = (components - components.mean(axis=0)).T @ (x - x.mean(axis=0)) / len(x)
    squared = (between / np.outer(components.std(axis=0), x.std(axis=0))) ** 2
    return int((squared[linear_sum_assignment(-squared)] >= _BLIND).sum())


def read_labels(replayed: Replayed, party: str, known: int, seed: int) -> list[LabelsRead]:
    """The labels of training rows from the party's own sums, and with a few known ones from the sums of all rounds."""
    m, labels = replayed.matrix(party), replayed.labels[replayed.train]
    told = torch.nn.functional.one_hot(labels)
    baseline, spread = scored(m, labels, known, seed), m.std(axis=0)
    own = (m[:, spread > 0] - m[:, spread > 0].mean(axis=0)) / spread[spread > 0]
    # its gradient is m' (p - y): of the labels it reads the sums alone
    likely = LogisticRegression(C=100.0, max_iter=1000).fit(own, labels.numpy()).predict_proba(own)
    seen = {"sums of the first round": area(torch.from_numpy(likely), told.bool())}
    if own.shape[1] * ROWS_A_BIN > len(m) and likely.shape[1] == 2:
        seen["the same, solved for whole labels"] = area(_solved(m, labels, likely[:, 1]), told.bool())
    of_all = m @ np.linalg.lstsq(m, replayed.residuals, rcond=None)[0]  # the least residuals with the sums
    left, sizes, _ = np.linalg.svd(of_all, full_matrices=False)
    seen["sums of all rounds"] = scored(left[:, :_COMPONENTS] * sizes[:_COMPONENTS], labels, known, seed)
    return [LabelsRead(what, found, baseline) for what, found in seen.items()]


def _solved(m: Floats, labels: Tensor, likely: Floats) -> Tensor:
    """The likeliest labels, from 0 to 1, with the sums M y, (rows, 2)."""
    y, lines = labels.numpy(), np.unique(m, axis=1).T
    found = linprog(-logit(likely.clip(_SURE, 1 - _SURE)), A_eq=lines, b_eq=lines @ y, bounds=(0, 1)).x
    return torch.from_numpy(np.stack([1 - found, found], axis=1))
