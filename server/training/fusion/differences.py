"""The VFL-CZOFO server's response: differences of the loss, and the quantities of Theorem 4.1.

The change of a loss under small perturbations of one party's embeddings is exact, for many directions at once. It is
tiny (4e-7 of a loss near 2.3, for steps of 1e-3), so losses must not be subtracted: float32 loses the difference. For a
head of linear layers and ReLU, changes are propagated instead:

    linear    z + e -> W z + W e:              the change becomes W e
    ReLU      relu(a + e) - relu(a)         =  max(e + min(a, 0), -max(a, 0))
    loss      l(z + e) - l(z)               =  log1p(sum_c p_c expm1(e_c)) - sum_c y_c e_c,   p = softmax(z)

(that of cross-entropy; common/models/losses.py has each loss's own).

No step subtracts nearly equal numbers, so the result has the relative precision of float32. The first layer sees W mu u
alone, whatever the other parties sent: all directions are one matrix product. For any other head all perturbed rows are
computed together with the unperturbed one, and the last line takes the difference of logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.models.losses import CrossEntropy, Objective
from colonnade.common.models.zeroth_order import Directions, spread
from colonnade.common.protocols.czofo import Config
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import CombinedHead

BLOCK = 2**20  # entries of a layer's changes at once: they stay in the cache


@dataclass(frozen=True)
class EmbeddingColumns:
    """Position of one party's embeddings in the head's input: their first column, and their factor `scale`, which is 1
    if concatenated, 1/M in an average.
    """

    first: int
    scale: float = 1.0


class Slopes:
    """Differences of one head's loss, divided by the step: delta_i^j / mu of Eq. 2 of VFL-CZOFO.

    Args:
        head: (rows, inputs) -> logits (rows, classes); not modified, and used without dropout.
        antithetic: True for steps both ways, (l(h + mu u) - l(h - mu u)) / 2 mu, instead of (l(h + mu u) - l(h)) / mu.
        loss: l; cross-entropy by default.
    """

    def __init__(self, head: nn.Module, *, mu: float, antithetic: bool = False, loss: Objective | None = None) -> None:
        layers = _layers(head)
        self._changes: _Exact | _Any = _Exact(layers) if layers else _Any(head)
        self._mu, self._antithetic, self._loss = mu, antithetic, loss or CrossEntropy()

    def __call__(self, h: Tensor, u: Tensor, targets: Tensor, place: EmbeddingColumns) -> Tensor:
        """Slopes of every row and direction, float64 (rows, q).

        `h` is the head's unperturbed input for the batch, float32 (rows, inputs), `u` the directions, float32 (rows, q,
        width).
        """
        at_rest = self._changes.begin(h)
        found = torch.empty(u.shape[:2], dtype=torch.float64, device=u.device)
        size = max(1, BLOCK // (u.shape[1] * self._changes.widest))
        for begin in range(0, len(u), size):
            rows = slice(begin, begin + size)
            found[rows] = self._of(rows, u[rows], at_rest[rows], targets[rows], place)
        return found

    def _of(self, rows: slice, u: Tensor, z: Tensor, y: Tensor, place: EmbeddingColumns) -> Tensor:
        there = self._loss.change(self._changes.of(rows, u, place, self._mu), z, y)
        if not self._antithetic:
            return there / self._mu
        return (there - self._loss.change(self._changes.of(rows, u, place, -self._mu), z, y)) / (2 * self._mu)


class _Exact:
    """Changes through a stack of linear layers and ReLU, in reused buffers."""

    def __init__(self, layers: list[tuple[nn.Linear, bool]]) -> None:
        self._layers = layers
        self._pre: list[Tensor] = []  # every layer's unperturbed output, before its ReLU
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self.widest = max(linear.out_features for linear, _ in layers)

    def begin(self, h: Tensor) -> Tensor:
        """Unperturbed logits, float32 (rows, classes), computed in float64: float32 rounds by as much as a change."""
        z = h.double()
        self._pre.clear()
        for linear, relu in self._layers:
            a = functional.linear(z, *(parameter.detach().double() for parameter in linear.parameters()))
            self._pre.append(a.float())
            z = a.relu() if relu else a
        return z.float()

    def of(self, rows: slice, u: Tensor, place: EmbeddingColumns, mu: float) -> Tensor:
        """The logits' changes for directions u (rows, q, width): (rows, q, classes)."""
        count, q, width = u.shape
        e = u.reshape(-1, width)
        for number, (linear, relu) in enumerate(self._layers):
            weight = linear.weight.detach()
            if number == 0:
                weight = weight[:, place.first : place.first + width] * (place.scale * mu)
            e = torch.mm(e, weight.T.contiguous(), out=self._buffer(number, len(e), e))
            if relu:
                a = self._pre[number][rows].unsqueeze(1)
                e = e.view(count, q, -1).add_(a.clamp(max=0))
                e = torch.maximum(e, -a.clamp(min=0), out=e).view(count * q, -1)
        return e.view(count, q, -1)

    def _buffer(self, number: int, rows: int, like: Tensor) -> Tensor:
        if (number, rows) not in self._buffers:
            width = self._layers[number][0].out_features
            self._buffers[number, rows] = like.new_empty(rows, width)
        return self._buffers[number, rows]


class _Any:
    """Changes through any head: the difference of logits, with the unperturbed rows in the same product."""

    def __init__(self, head: nn.Module) -> None:
        self._head, self._h = head, torch.empty(0)
        self.widest = 1

    def begin(self, h: Tensor) -> Tensor:
        self._h, self.widest = h, h.shape[1]
        with torch.no_grad():
            return self._evaluate(h)

    def of(self, rows: slice, u: Tensor, place: EmbeddingColumns, mu: float) -> Tensor:
        count, q, width = u.shape
        moved = self._h[rows].unsqueeze(1).repeat(1, q + 1, 1)
        moved[:, 1:, place.first : place.first + width] += u * (mu * place.scale)
        with torch.no_grad():
            logits = self._evaluate(moved.flatten(0, 1)).view(count, q + 1, -1)
        return logits[:, 1:] - logits[:, :1]

    def _evaluate(self, h: Tensor) -> Tensor:
        self._head.eval()
        logits: Tensor = self._head(h)
        self._head.train()
        return logits


def _layers(head: nn.Module) -> list[tuple[nn.Linear, bool]] | None:
    """The head's linear layers, each with True if a ReLU follows; None if it has others. Dropout is ignored."""
    modules = list(head) if type(head) is nn.Sequential else [head]
    layers: list[tuple[nn.Linear, bool]] = []
    for module in modules:
        if type(module) is nn.Linear:
            layers.append((module, False))
        elif type(module) is nn.ReLU and layers and not layers[-1][1]:
            layers[-1] = (layers[-1][0], True)
        elif not isinstance(module, nn.Dropout):
            return None
    return layers or None


_SAMPLED = 10  # the estimate's variance is measured every 10th turn
_NOTHING = {"zeta": 0.0, "variance": 0.0, "sampled": 0, "turns": 0}


class Perturbed:
    """The joint model with one party's embeddings perturbed along directions that the party knows."""

    def __init__(self, ctx: ServerContext, cfg: Config, whole: CombinedHead, parties: tuple[str, ...]) -> None:
        self._ctx, self._cfg, self._whole = ctx, cfg, whole
        self._slopes = Slopes(whole.head, mu=cfg.mu, antithetic=cfg.antithetic, loss=ctx.loss)
        self._directions = Directions(ctx.federation.seed, cfg.draw, cfg.directions, cfg.embedding)
        self._places = {
            party: EmbeddingColumns(index * cfg.embedding)
            if cfg.combine == "concatenate"
            else EmbeddingColumns(0, 1 / len(parties))
            for index, party in enumerate(parties)
        }
        self._indices = {party: index for index, party in enumerate(parties)}
        self._private = ctx.protection(whole.head)
        self._h = self._y = self._batch = torch.empty(0)
        self._dh: Sequence[Tensor] = ()
        self._shared = 1

    def begin(self, parts: Sequence[Tensor], batch: Tensor) -> float:
        """The batch's mean unperturbed loss; its gradient is kept for the server's own step.

        `parts` are every party's last embeddings, float32 (rows, width) each; `batch` row numbers, int64 (rows,).
        """

        def remembered(logits: Tensor) -> Tensor:
            self._y = self._ctx.targets(batch, logits)
            return self._y

        self._batch, self._h = batch, self._whole.combined(parts)
        if self._private is None:
            loss, self._dh, self._shared = self._whole.backward(parts, remembered)
        else:
            loss = self._whole.protected(parts, remembered, batch, self._private)
        if not math.isfinite(loss):
            raise self._ctx.watch.blame_loss(loss)
        return loss

    def of(self, party: str, turn: int) -> tuple[int, Tensor]:
        """The directions' mark, and delta / mu, float32 (1, q) or (rows, q). Must be called before the head's step."""
        drawn = self._directions.of(party, turn, len(self._h))
        u = drawn.u.to(self._h.device)
        slopes = self._slopes(self._h, u, self._y, self._places[party])
        delta = self._released(slopes, party, u)
        if self._cfg.arrivals:
            self._directions.ahead(party, turn + 1, len(self._ctx.schedule.batch(turn + 1)))
        return drawn.mark, delta

    def _released(self, slopes: Tensor, party: str, u: Tensor) -> Tensor:
        """The message's values from the slopes (rows, q) of every row; protected labels add noise first."""
        rowwise = self._cfg.delta == "row"
        if self._private is not None:
            values = slopes.float()
            noised = self._private.rows if rowwise else self._private.mean
            return noised(values, self._batch).view(-1, values.shape[1])
        delta = (slopes if rowwise else slopes.mean(0, keepdim=True)).float()
        if self._cfg.theorem:
            self._measure(party, delta, u)
        return delta

    def _measure(self, party: str, delta: Tensor, u: Tensor) -> None:
        """Records zeta, the largest norm of a row's gradient, and in some turns sigma^2 = tr(Psi) / (q d)."""
        measured = self._ctx.state.keep("theorem", lambda: dict(_NOTHING))
        rows = len(u)
        gradient = self._dh[self._indices[party]] * (rows / self._shared)  # of each row's own loss
        measured["zeta"] = max(measured["zeta"], float(gradient.norm(dim=1).max()))
        if measured["turns"] % _SAMPLED == 0 and u.shape[1] > 1:
            measured["variance"] += spread(delta, u, self._directions.factor) / (u.shape[1] * u.shape[2])
            measured["sampled"] += 1
        measured["turns"] += 1
