"""Lagrange coded computing: rows in K segments, masked by T masks, as N shares that can be computed on.

Source: Yu et al., "Lagrange Coded Computing" (2019), as in FedVS: Li, Yao and Liu, "FedVS" (2023), Eqs. 2, 4 and 6. A
polynomial of degree K + T - 1 takes the segments at β_1 .. β_K and the masks at β_{K+1} .. β_{K+T}; share n is its
value at α_n. A product of shares of data and of a model is a value of ψ, of degree 2 (K + T - 1). Any R of them, with R
= 2 (K + T - 1) + 1, determine ψ; at β_1 .. β_K its values are the products of the shared inputs.

Any T shares are uniform and independent of their inputs. The R responses from which a sum is decoded are not: they
determine all of ψ, of which the sums are only a part. Example: x w = 0. If x = w = 0, both factors of ψ are zero at
β_1, and β_1 is a double root; if x = 0 and w = 3 it almost never is. Under a model of zeros, which may be the initial
one, ψ shows which rows of the data are equal. FedVS does not mention this leak. `vanishing` closes it: shares of a
random polynomial of ψ's degree that is zero at β_1 .. β_K are added to the responses, which then reveal the sums alone.
Matrices are computed with Python's integers and applied with the field's product.

Rows are coded in K segments: one coded row stands for K real ones. Every part (training, validation, test) is cut into
K segments of equal length, the last one padded. Position i of a part stands for the i-th row of each of its segments; a
batch of positions stands for K times as many rows, in segment order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from colonnade.common.aggregation.field import Field
from colonnade.common.aggregation.integers import CodeParameters, agreed_parameters, lagrange_matrix
from colonnade.common.config.federation import FederationConfig
from colonnade.common.data.rows import Batches, Partition
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.messaging.outgoing import MaskedTensor

_SETS = 256  # sets of senders whose decoding matrices are cached


@dataclass(frozen=True)
class LagrangeCode(CodeParameters):
    """A code whose field computes on tensors."""

    field: Field

    @classmethod
    def of(cls, agreed: CodeParameters) -> LagrangeCode:
        return cls(Field(agreed.field.p), agreed.segments, agreed.betas, agreed.alphas)

    def encode(self, segments: Tensor, masks: Tensor) -> Tensor:
        """Shares of data, int64 (N, ...) (Eq. 2).

        Args:
            segments: X̄_1 .. X̄_K, elements (K, ...).
            masks: Z_{K+1} .. Z_{K+T}, uniform elements (T, ...), never used before.
        """
        self._check("segments", segments, (self.segments, *segments.shape[1:]))
        self._check("masks", masks, (self.masks, *segments.shape[1:]))
        return self._apply(self._generator, torch.cat([segments, masks]))

    def encode_same(self, model: Tensor, masks: Tensor) -> Tensor:
        """Shares of a model, int64 (N, ...), the same in every segment (Eq. 4): K columns of the generator are summed.

        Args:
            model: W̄, elements (...).
            masks: V_{K+1} .. V_{K+T}, uniform elements (T, ...), never used before.
        """
        self._check("masks", masks, (self.masks, *model.shape))
        return self._apply(self._collapsed, torch.cat([model[None], masks]))

    def answer(self, data: Tensor, weights: Tensor, masks: Tensor | None) -> MaskedTensor:
        """A party's response: H_j of some coded rows (Eq. 5), int32 (coded, width).

        Args:
            data: a share of all parties' data, (coded, columns).
            weights: the shares of the models that are summed over, stacked, (columns, width).
            masks: shares of vanishing polynomials, (coded, width); None if responses are not masked.
        """
        h = self.field.matmul(data, weights)
        h = h if masks is None else self.field.add(h, masks)
        return MaskedTensor(h.to(torch.int32), f"coded sum, T={self.masks}")

    def decode(self, senders: Sequence[int], answers: Tensor) -> Tensor:
        """ψ(β_1) .. ψ(β_K), int64 (K, ...), from the first R responses.

        Args:
            senders: the responses' indices 0 .. N - 1 of their α, in any order.
            answers: ψ(α) of each, elements (R or more, ...).
        """
        self._check_senders(senders, answers)
        first = senders[: self.threshold]
        return self._apply(decoding_of(self, tuple(sorted(first)))[:, _ranks(first)], answers[: self.threshold])

    def strays(self, senders: Sequence[int], answers: Tensor) -> list[int]:
        """The senders beyond the first R whose responses are not on the first R's polynomial; arguments as in `decode`.

        Empty if all agree. If a single one of the first R is wrong, every sender beyond is returned.
        """
        self._check_senders(senders, answers)
        first, beyond = senders[: self.threshold], senders[self.threshold :]
        if not beyond:
            return []
        sources, targets = ([self.alphas[place] for place in places] for places in (first, beyond))
        matrix = torch.tensor(lagrange_matrix(sources, targets, self.field.p))
        expected = self._apply(matrix, answers[: self.threshold])
        wrong = (expected != answers[self.threshold :]).flatten(1).any(1).tolist()
        return [sender for sender, differs in zip(beyond, wrong, strict=True) if differs]

    def vanishing(self, coefficients: Tensor) -> Tensor:
        """Shares of a polynomial of degree R - 1 that is zero at β_1 .. β_K: r(x) Π_k (x - β_k).

        Args:
            coefficients: r's, uniform elements (R - K, ...), never used before.

        Returns:
            Its values at α_1 .. α_N, int64 (N, ...): added to the responses, they change no sum.
        """
        self._check("coefficients", coefficients, (self.freedom, *coefficients.shape[1:]))
        return self._apply(self._vandermonde, coefficients)

    @cached_property
    def _generator(self) -> Tensor:
        """int64 (N, K + T)."""
        return torch.tensor(lagrange_matrix(self.betas, self.alphas, self.field.p))

    @cached_property
    def _collapsed(self) -> Tensor:
        """int64 (N, 1 + T)."""
        data, masks = self._generator[:, : self.segments], self._generator[:, self.segments :]
        return torch.cat([data.sum(1, keepdim=True) % self.field.p, masks], dim=1)

    @cached_property
    def _vandermonde(self) -> Tensor:
        """α_n^j Π_k (α_n - β_k), int64 (N, R - K)."""
        p, rows = self.field.p, []
        for alpha in self.alphas:
            zeros = 1
            for beta in self.betas[: self.segments]:
                zeros = zeros * (alpha - beta) % p
            rows.append([pow(alpha, j, p) * zeros % p for j in range(self.freedom)])
        return torch.tensor(rows)

    def _apply(self, matrix: Tensor, values: Tensor) -> Tensor:
        flat = self.field.matmul(matrix.to(values.device), values.flatten(1))
        return flat.reshape(len(matrix), *values.shape[1:])

    def _check(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"{name} of a Lagrange code have shape {tuple(tensor.shape)}, expected {shape}",
                hint=f"K = {self.segments}, T = {self.masks}, R - K = {self.freedom}",
            )

    def _check_senders(self, senders: Sequence[int], answers: Tensor) -> None:
        if len(senders) != len(answers) or len(senders) < self.threshold:
            raise InputError(
                f"{len(answers)} responses of {len(senders)} senders: expected one each, and R = {self.threshold}",
                hint="wait for more parties, or take a smaller K or T",
            )
        if len(set(senders)) < len(senders) or not set(senders) <= set(range(self.shares)):
            raise InputError(
                f"senders {list(senders)} repeat, or are not of 0 .. {self.shares - 1}", hint="name each once"
            )


def agreed_code(field: Field, segments: int, masks: int, shares: int) -> LagrangeCode:
    return LagrangeCode.of(agreed_parameters(field, segments, masks, shares))


@lru_cache(maxsize=_SETS)
def decoding_of(code: LagrangeCode, senders: tuple[int, ...]) -> Tensor:
    """int64 (K, R), for senders in ascending order."""
    return torch.tensor(lagrange_matrix([code.alphas[s] for s in senders], code.betas[: code.segments], code.field.p))


def _ranks(senders: Sequence[int]) -> list[int]:
    order = {sender: rank for rank, sender in enumerate(sorted(senders))}
    return [order[sender] for sender in senders]


PARTS = ("train", "validation", "test")
NOTHING = -1  # row number of padding


@dataclass(frozen=True)
class Block:
    """Some coded rows.

    Args:
        positions: among all coded rows, int64 (coded,).
        rows: the real rows, int64 (K * coded,) in segment order, NOTHING for padding.
    """

    positions: Tensor
    rows: Tensor

    @property
    def real(self) -> Tensor:
        return self.rows != NOTHING


class CodedRows:
    """The coded rows of a federation: those of training first, then validation's and test's.

    Args:
        segments: K.
        federation: a batch has floor(`batch` / K) coded rows, at least one.

    Attributes:
        evaluated: number of them in validation and test.
        batch: coded rows of a full batch.
    """

    def __init__(self, partition: Partition, segments: int, federation: FederationConfig) -> None:
        if segments > len(partition.train):
            raise ConfigError(
                f"federation.protocol.segments = {segments}: there are {len(partition.train)} training rows",
                hint="take fewer segments",
            )
        self._segments = segments
        self._tables = {part: _cut(getattr(partition, part), segments) for part in PARTS}
        lengths = [table.shape[1] for table in self._tables.values()]
        self._offsets = dict(zip(PARTS, [0, lengths[0], lengths[0] + lengths[1]], strict=True))
        self.total, self.evaluated = sum(lengths), sum(lengths[1:])
        self.batch = min(max(1, federation.batch // segments), lengths[0])
        self._batches = Batches(lengths[0], self.batch, federation.seed, federation.shuffle)

    def training(self, round: int) -> Block:
        """B(t)."""
        return self._block("train", self._batches.of(round))

    def blocks(self, part: str) -> list[Block]:
        """All coded rows of a part in order, in blocks of a batch."""
        places = torch.arange(self._tables[part].shape[1])
        return [self._block(part, some) for some in torch.split(places, self.batch)] if len(places) else []

    def chunks(self, size: int) -> list[Block]:
        """All coded rows of all parts in order, in blocks of `size`."""
        every = torch.cat([self._tables[part] for part in PARTS], dim=1)  # (K, total)
        return [Block(places, every[:, places].reshape(-1)) for places in torch.split(torch.arange(self.total), size)]

    def _block(self, part: str, places: Tensor) -> Block:
        return Block(places + self._offsets[part], self._tables[part][:, places].reshape(-1))


def _cut(rows: Tensor, segments: int) -> Tensor:
    """(M,) -> (K, ceil(M / K))."""
    length = -(-len(rows) // segments)
    filled = torch.full((segments * length,), NOTHING, dtype=torch.int64)
    filled[: len(rows)] = rows
    return filled.view(segments, length)
