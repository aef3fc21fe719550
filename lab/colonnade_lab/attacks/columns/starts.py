"""Columns found by a server that knows, or finds, the parties' first weights.

With the weights of every round an embedding depends on the columns alone, and the gradients that the server sent
determine the later weights. Rows and weights are solved for alternately. Models are linear layers and ReLUs.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colonnade.common.data.draws import AgreedDraws
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.models.optimiser import build_optimiser
from colonnade_lab.attacks.columns.matching import Marginals
from colonnade_lab.attacks.columns.sight import Seen, Sight

Layer = tuple[Tensor, Tensor, bool]
"""Weights (outputs, inputs), biases (outputs,), and whether a ReLU follows."""


@dataclass(frozen=True)
class Dense:
    """Sum of several members' networks, each applied to its own columns."""

    networks: Sequence[Sequence[Layer]]
    columns: Sequence[int]

    @classmethod
    def of(cls, models: Sequence[nn.Module], columns: Sequence[int]) -> Dense:
        """Copies the models' present weights in float64. Raises InputError if a model has other layers."""
        return cls([_layers(model) for model in models], columns)

    def __call__(self, x: Tensor) -> Tensor:
        return self.sloped(x, slopes=False)[0]

    def sloped(self, x: Tensor, *, slopes: bool = True) -> tuple[Tensor, Tensor]:
        """Returns the outputs (n, width) and the Jacobians (n, width, columns) of rows (n, columns)."""
        total: Tensor | float = 0.0
        found = []
        for layers, part in zip(self.networks, torch.split(x, list(self.columns), dim=1), strict=True):
            value, slope = part, None
            for weight, bias, bends in layers:
                value = value @ weight.T + bias
                if slopes:
                    slope = weight.expand(len(x), *weight.shape) if slope is None else weight @ slope
                if bends:
                    if slope is not None:
                        slope = slope * (value > 0)[..., None]
                    value = value.clamp(min=0)
            total = total + value
            if slope is not None:
                found.append(slope)
        assert isinstance(total, Tensor)
        return total, torch.cat(found, dim=2) if found else total


def _layers(model: nn.Module) -> list[Layer]:
    found: list[Layer] = []
    for module in model.modules():
        match module:
            case nn.Linear():
                bias = torch.zeros(module.out_features) if module.bias is None else module.bias
                found.append((module.weight.detach().double(), bias.detach().double(), False))
            case nn.ReLU() if found:
                found[-1] = (*found[-1][:2], True)
            case nn.Flatten() | nn.Sequential():
                pass
            case _:
                raise InputError(
                    f"a model with {type(module).__name__}: this attack knows linear layers and ReLUs",
                    hint="take a run with model: linear or mlp",
                )
    return found


_RIDGE = 1e-8  # ridge: selects the shortest row among many that fit
_TRIES, _ROUNDS = 4, 6  # guesses per row at a time, and rounds for unsolved rows
_SOLVED = 1e-6  # squared share of a row's messages that may stay unexplained
_BEST = 4  # starts that get all guesses, besides the agreed one
_FIRST, _AGAIN = 20, 3  # steps of a row's first solution, and of one from all of its messages
_WRONG = 0.1  # misfit of the first exchange that rejects a start
_BY_CHANCE = 0.8  # distance from the known distributions, times the root of the rows
_TOLD = 1  # surplus of numbers over columns that reveals a wrong start by its misfit


@dataclass(frozen=True)
class Solved:
    """Rows that explain the messages, if the models began as assumed, and the root of the messages' unexplained share.

    If the first exchange contradicts the assumed start, it does not fit, and `x` holds the columns' means.
    """

    x: Tensor
    misfit: float
    fits: bool


@dataclass(frozen=True)
class StartSearch:
    """Result of trying starts: the best one's misfit at the first exchange, and whether the agreed section gives it."""

    tried: int
    a_second: float
    misfit: float
    public: bool
    solved: Solved


def public_starts(sight: Sight, seed: int | None = None) -> list[torch.Generator]:
    """Generators of the members' first weights under `public_start`; `seed` None means the agreed one."""
    federation = sight.federation
    chosen = federation.seed if seed is None else seed
    return [AgreedDraws(chosen, federation.names, member.name).generator("model") for member in sight.members]


def known_start(sight: Sight, models: Sequence[nn.Module], known: Marginals) -> Solved:
    """Solves for the columns of every row that was seen, given the members' first models."""
    x, pairs = _in_turn(sight, models, known)
    if not pairs:
        return Solved(known.mean.expand(len(sight.rows), -1), 1.0, fits=False)
    first = Solved(x, _misfit(x, pairs), fits=True)
    if sum(len(one.rows) for one in sight.seen) == len(sight.rows):
        return first  # every row was seen once
    x = _descend(x, pairs, _AGAIN)
    again = Solved(x, _misfit(x, list(zip(sight.seen, _trajectory(sight, models, x), strict=True))), fits=True)
    return min(first, again, key=lambda one: one.misfit)


def search_starts(sight: Sight, known: Marginals, count: int) -> StartSearch:
    """Tries at most `count` starts on the first exchange, and solves for the columns with the best one.

    Candidates are the start that follows from the agreed section, those from the federation's seeds 0, 1, .. in its
    place, and, for one party's messages, those from torch's own seeds 0, 1, .., which have 32 bits.
    """
    begun, first = time.monotonic(), sight.seen[0]
    others = count - 1 if sight.blinded else (count - 1) // 2
    federation_seeds: list[int | None] = [None, *range(others)]  # the agreed one first
    own_seeds = [] if sight.blinded else range(count - 1 - others)
    candidates = [sight.models(public_starts(sight, seed)) for seed in federation_seeds]
    candidates += [sight.models([torch.Generator().manual_seed(seed)]) for seed in own_seeds]
    sizes = [member.columns for member in sight.members]
    found = [(*_tried(Dense.of(models, sizes), first.said, known, 1), place) for place, models in enumerate(candidates)]
    rate = len(candidates) / max(time.monotonic() - begun, 1e-9)
    told = first.said.shape[1] >= sight.columns + _TOLD  # otherwise every start fits the messages
    by = 0 if told else 1
    again = []
    for place in {0, *(one[2] for one in sorted(found, key=lambda one: one[by])[:_BEST])}:
        again.append((*_tried(Dense.of(candidates[place], sizes), first.said, known, _ROUNDS), place))
    misfit, distance, best = min(again, key=lambda one: one[by])
    fits = misfit < _WRONG if told else distance < _BY_CHANCE / math.sqrt(len(first.said))
    solved = Solved(known.mean.expand(len(sight.rows), -1), 1.0, fits=False)
    if fits:
        solved = known_start(sight, candidates[best], known)
    return StartSearch(len(candidates), rate, misfit, best == 0, solved)


def _tried(network: Dense, said: Tensor, known: Marginals, rounds: int) -> tuple[float, float]:
    x = begin(network, said, known, rounds)
    return _misfit(x, [(_whole(said), network)]), known.distance(x)


def _in_turn(sight: Sight, models: Sequence[nn.Module], known: Marginals) -> tuple[Tensor, list[tuple[Seen, Dense]]]:
    """Rows from the first exchange of each, and the models before every exchange; none for a wrong start."""
    x = torch.zeros(len(sight.rows), sight.columns, dtype=torch.float64)
    fresh = torch.ones(len(x), dtype=torch.bool)
    pairs: list[tuple[Seen, Dense]] = []
    for one, network in zip(sight.seen, _trajectory(sight, models, x), strict=True):
        new = fresh[one.rows]
        if bool(new.any()):
            x[one.rows[new]] = begin(network, one.said[new], known)  # before the models advance with these rows
        fresh[one.rows] = False
        pairs.append((one, network))
        if len(pairs) == 1 and _misfit(x, pairs) > _WRONG:
            return x, []
    return x, pairs


def begin(network: Dense, said: Tensor, known: Marginals, rounds: int = _ROUNDS) -> Tensor:
    """Finds rows (n, columns) that a network maps to the messages (n, width): the best of several tries each."""
    draws, columns = generator("first guesses", 0), known.values.shape[1]
    straight = all(not bends for layers in network.networks for _, _, bends in layers)
    whole = [(_whole(said), network)]
    x = _descend(torch.zeros(len(said), columns, dtype=torch.float64), whole, 1 if straight else _FIRST)
    if straight:
        return x
    enough = _SOLVED * (said - said.mean(0)).square().sum(1).mean()
    cost = _costs(x, whole)
    for _ in range(rounds - 1):
        open_ = (cost > enough + 2 * _RIDGE * x.square().sum(1)).nonzero().flatten()
        if not len(open_):
            break
        guesses = torch.randn(_TRIES * len(open_), columns, generator=draws, dtype=torch.float64)
        pair = [(_whole(said[open_].repeat(_TRIES, 1)), network)]
        tried = _descend(guesses, pair, _FIRST)
        costs = _costs(tried, pair).view(_TRIES, len(open_))
        least, which = costs.min(0)
        tried = tried.view(_TRIES, len(open_), columns)[which, torch.arange(len(open_))]
        better = least < cost[open_]
        x[open_[better]], cost[open_[better]] = tried[better], least[better]
    return x


def _trajectory(sight: Sight, models: Sequence[nn.Module], x: Tensor) -> Iterator[Dense]:
    """Yields the models before each exchange for the rows `x`, which may be changed meanwhile."""
    models = [copy.deepcopy(model) for model in models]
    optimisers = [
        build_optimiser(member.optimiser, model.parameters())
        for member, model in zip(sight.members, models, strict=True)
    ]
    for one in sight.seen:
        yield Dense.of(models, [member.columns for member in sight.members])
        if one.gradient is None:
            continue
        for model, optimiser, part in zip(models, optimisers, sight.parts(x[one.rows]), strict=True):
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(model(part.float()), one.gradient.float())
            optimiser.step()


def _descend(x: Tensor, pairs: Sequence[tuple[Seen, Dense]], steps: int) -> Tensor:
    size = x.shape[1]
    eye = torch.eye(size, dtype=x.dtype)
    damping = torch.full((len(x),), 1e-6 if steps == 1 else 1e-3, dtype=x.dtype)
    cost = _costs(x, pairs)
    for _ in range(steps):
        normal, right = torch.zeros(len(x), size, size, dtype=x.dtype), -_RIDGE * x
        for one, network in pairs:
            made, slope = network.sloped(x[one.rows])
            normal.index_add_(0, one.rows, slope.mT @ slope)
            right.index_add_(0, one.rows, (slope.mT @ (one.said - made)[..., None])[..., 0])
        scale = normal.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-12)
        step, _ = torch.linalg.solve_ex(normal + (damping * scale + _RIDGE + 1e-12)[:, None, None] * eye, right)
        tried = x + step
        after = _costs(tried, pairs)
        better = after < cost
        x = torch.where(better[:, None], tried, x)
        cost = torch.where(better, after, cost)
        damping = torch.where(better, damping / 10, damping * 10).clamp(1e-12, 1e6)
    return x


def _costs(x: Tensor, pairs: Sequence[tuple[Seen, Dense]]) -> Tensor:
    cost = _RIDGE * x.square().sum(1)
    for one, network in pairs:
        cost.index_add_(0, one.rows, (one.said - network(x[one.rows])).square().sum(1))
    return cost


def _whole(said: Tensor) -> Seen:
    return Seen(torch.arange(len(said)), said, None)


def _misfit(x: Tensor, pairs: Sequence[tuple[Seen, Dense]]) -> float:
    missed = sum(float((one.said - network(x[one.rows])).square().sum()) for one, network in pairs)
    whole = sum(float((one.said - one.said.mean(0)).square().sum()) for one, _ in pairs)
    return float((missed / max(whole, 1e-30)) ** 0.5)
