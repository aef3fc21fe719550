"""Zeroth-order optimisation: gradients from differences of the loss along directions.

At a cut layer: Eq. 2 of VFL-CZOFO (Wang et al., 2023). Its directions are drawn identically at both ends of a
connection and never sent. A keystream (AES in counter mode: the key of a party, the counter of a turn) is cut into
words, and a word w of 12 bits becomes the normal quantile at (w + 1/2) / 2^12. Every machine then draws the same
numbers, independent of library versions, at a fraction of the cost of torch's normal numbers: the table stays in the L1
cache. The tails end at 3.5 standard deviations, and a common factor makes the variance 1. The directions are known to
both ends and give no protection: common/protocols/czofo.py.

Over a model's parameters: two evaluations along one direction. Zhang et al., "Desirable companion for vertical
federated learning: new zeroth-order gradient based algorithm" (CIKM 2021); the same Eq. 2 with q = 1. For a loss f and
parameters w of d numbers,

    phi (f(w + mu u) - f(w)) / mu  u,    u uniform on the unit sphere, phi = d; or u normal, phi = 1

has for mu -> 0 the gradient of f as its expectation. It is one number along one direction: its square is about d times
the gradient's, so a step must be shorter by this factor.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.common.models.losses import Loss


def estimate(slopes: Tensor, u: Tensor, factor: float) -> Tensor:
    """(phi / q) sum_j (delta^j / mu) u_i^j: estimated gradient of the batch's mean loss at h, float32 (rows, width).

    Its expectation is the gradient, up to terms of the order of mu.

    Args:
        slopes: delta^j / mu of the batch's mean loss, float32 (1, q); or delta_i^j / mu of every row's own loss, (rows,
            q).
        u: float32 (rows, q, width), every u_i^j with E[u u'] = I / phi.
        factor: phi.
    """
    rows, q, _ = u.shape
    if len(slopes) == 1:
        return torch.matmul(slopes[0], u).mul_(factor / q)
    return torch.bmm(slopes.unsqueeze(1), u).squeeze(1).mul_(factor / (q * rows))


def spread(slopes: Tensor, u: Tensor, factor: float) -> float:
    """tr(Psi): variance of one direction's estimate of a row's gradient, from the q samples.

    The sample variance of phi (delta^j / mu) u_i^j over j, summed over a row's entries and averaged over rows; with the
    batch's mean loss, scaled by the number of rows, since a row's own gradient is that many times the mean's.

    Args:
        slopes, u, factor: as above, with q >= 2 drawn independently.
    """
    rows, q, _ = u.shape
    mean = estimate(slopes, u, factor).double() * rows  # (rows, width)
    scale = factor * (rows if len(slopes) == 1 else 1)
    squares = (u.square().sum(2).double() * slopes.double().square()).sum() * scale**2
    return float(squares - q * mean.square().sum()) / (q - 1) / rows


Draw = Literal["sphere", "normal", "signs", "orthogonal"]

_QUANTILES = 2**12
_AHEAD = 4  # parties whose next directions are drawn in advance
_PIECE = 2**16  # bytes of the keystream per piece
_ZEROS = bytes(_PIECE)


@dataclass(frozen=True)
class Drawn:
    """Directions of one turn, float32 (rows, q, width), valid until the party's next draw; equal marks mean equal
    directions.
    """

    u: Tensor
    mark: int


class Directions:
    """u_i^1 .. u_i^q for every row i of a turn's batch, from a distribution with E[u u'] = I / phi.

    `sphere`: uniform on the unit sphere, phi = width. `normal`: standard normal, phi = 1. `signs`: every entry
    +-1/sqrt(width), phi = width; the cheapest. `orthogonal`: on the sphere, with a row's q directions mutually
    orthogonal, phi = width. `count` is q, `width` d of an embedding.
    """

    def __init__(self, seed: int, draw: Draw, count: int, width: int) -> None:
        self._seed, self._draw, self._count, self._width = seed, draw, count, width
        self._buffers: dict[str, NDArray[np.float32]] = {}
        self._ahead: dict[str, tuple[tuple[int, int], Future[Drawn]]] = {}
        self._thread = ThreadPoolExecutor(1, "directions")

    @property
    def factor(self) -> int:
        """phi(d) of Eq. 2 of VFL-CZOFO."""
        return 1 if self._draw == "normal" else self._width

    def of(self, party: str, turn: int, rows: int) -> Drawn:
        """Directions of one turn of the perturbed party, for this number of rows."""
        asked, drawn = self._ahead.pop(party, (None, None))
        if drawn is not None:
            found = drawn.result()
            if asked == (turn, rows):
                return found
        return self._drawn(party, turn, rows)

    def ahead(self, party: str, turn: int, rows: int) -> None:
        """Starts drawing the party's next directions in a thread; its earlier ones become invalid."""
        if len(self._ahead) < _AHEAD:
            self._ahead[party] = ((turn, rows), self._thread.submit(self._drawn, party, turn, rows))

    def _drawn(self, party: str, turn: int, rows: int) -> Drawn:
        size = rows * self._count * self._width
        values = self._buffer(party, -(-size // 8) * 8)  # whole bytes of signs
        mark = self._fill(self._stream(party, turn), values)
        u = torch.from_numpy(values[:size]).reshape(rows, self._count, self._width)
        if self._draw == "signs":
            u *= self._width**-0.5
        elif self._draw == "sphere":
            u *= torch.linalg.vector_norm(u, dim=2, keepdim=True).reciprocal_()
        elif self._draw == "orthogonal":
            q, r = torch.linalg.qr(u.mT)  # columns; signs make r's diagonal positive, for uniformity
            u = (q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)).mT.contiguous()
        return Drawn(u, mark)

    def _buffer(self, party: str, size: int) -> NDArray[np.float32]:
        if len(self._buffers) > 2 * _AHEAD:
            self._buffers.clear()
        buffer = self._buffers.get(party)
        if buffer is None or len(buffer) < size:  # the thread may be in here too, for another party
            buffer = self._buffers[party] = np.empty(size, np.float32)
        return buffer[:size]

    def _stream(self, party: str, turn: int) -> CipherContext:
        key = hashlib.blake2b(f"directions/{self._seed}/{party}".encode(), digest_size=16).digest()
        return Cipher(AES128(key), CTR(turn.to_bytes(8) + bytes(8))).encryptor()

    def _fill(self, stream: CipherContext, values: NDArray[np.float32]) -> int:
        """Fills `values` with signs or normal numbers; returns the mark of the keystream's last piece."""
        signs = self._draw == "signs"
        buffer = np.empty(_PIECE, np.uint8)
        step = _PIECE * 8 if signs else _PIECE // 2
        piece = buffer[:0]
        for begin in range(0, len(values), step):
            some = values[begin : begin + step]
            piece = buffer[: len(some) // 8 if signs else 2 * len(some)]
            stream.update_into(_ZEROS[: len(piece)], piece.data)
            (_signs if signs else _normals)(piece, some)
        return zlib.crc32(piece.data)


def _normals(stream: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    words = stream.view("<u2") & (_QUANTILES - 1)
    np.take(_quantiles(), words, out=out, mode="wrap")  # no word is out of range; wrap avoids the check


def _signs(stream: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    np.take(_sign_bits(), stream, axis=0, out=out.reshape(-1, 8), mode="wrap")


@functools.cache
def _quantiles() -> NDArray[np.float32]:
    """The normal distribution's value for every word, scaled to a variance of exactly 1."""
    normal = NormalDist()
    above = np.array([normal.inv_cdf((word + 0.5) / _QUANTILES) for word in range(_QUANTILES // 2, _QUANTILES)])
    exact = np.concatenate([-above[::-1], above])
    scaled: NDArray[np.float32] = (exact / np.sqrt(np.mean(exact**2))).astype(np.float32)
    return scaled


@functools.cache
def _sign_bits() -> NDArray[np.float32]:
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return bits.astype(np.float32) * 2 - 1


Distribution = Literal["sphere", "normal"]


class TwoPoint:
    """Evaluates a model at two points and estimates the gradient from the loss at both.

    Args:
        draws: generator of the directions, on the CPU.
        draw: a normal direction has length about sqrt(d), which scales the step mu.
        mu: step along u to the second point, above 0.
    """

    def __init__(self, model: nn.Module, draws: torch.Generator, *, draw: Distribution, mu: float) -> None:
        self._model, self._draws, self._draw, self._mu = model, draws, draw, mu
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._names, self._parameters = list(trained), list(trained.values())
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._u = torch.empty(0)  # the last direction, (d,)

    def __call__(self, inputs: Tensor, *others: Tensor) -> list[Tensor]:
        """[f(inputs; w), f(inputs; w + mu u), f(others; w) ..] for a new u, without a graph; w does not change.

        All of them use the same dropout if it comes from torch's own generator. Running statistics of batch norm are
        updated as by f(inputs; w) alone. `others` have the shape of `inputs`.
        """
        self._u = self._direction()
        with torch.no_grad():
            moved = nn.utils.parameters_to_vector(self._parameters).add_(self._u, alpha=self._mu)
            perturbed = self._aside(inputs, self._split(moved))
            unperturbed = [self._aside(other, {}) for other in others]
            return [self._model(inputs), perturbed, *unperturbed]  # last: its draws and statistics are the ones kept

    def estimate(self, slope: float) -> None:
        """Sets every trained parameter's `grad` to its part of phi slope u; slope = (f(w + mu u) - f(w)) / mu."""
        phi = sum(self._sizes) if self._draw == "sphere" else 1
        gradient = self._split(self._u * (phi * slope))
        for name, parameter in zip(self._names, self._parameters, strict=True):
            parameter.grad = gradient[name]

    def _direction(self) -> Tensor:
        """u, (d,), of the parameters' dtype and on their device."""
        normals = torch.randn(sum(self._sizes), generator=self._draws).to(self._parameters[0])
        return normals if self._draw == "normal" else normals / normals.norm()

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        parts = zip(self._names, torch.split(flat, self._sizes), self._parameters, strict=True)
        return {name: part.view_as(parameter) for name, part, parameter in parts}

    def _aside(self, inputs: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """f with other parameters; buffers and torch's generator are restored."""
        buffers = {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        with torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
            outputs: Tensor = functional_call(self._model, {**parameters, **buffers}, (inputs,))
        return outputs


def row_losses(loss: Loss, logits: Tensor, targets: Tensor) -> Tensor:
    """Losses of rows, float64 (rows,), from logits (rows, classes).

    Their differences are often a millionth of their size: subtract row by row, then take the mean.
    """
    return loss.value(logits.double(), targets)
