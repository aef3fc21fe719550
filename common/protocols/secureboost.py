"""SecureBoost: gradient-boosted trees over the columns of all parties, from sums that the server encrypts.

Cheng, Fan, Jin, Liu, Chen, Papadopoulos and Yang, "SecureBoost: A Lossless Federated Learning Framework" (IEEE
Intelligent Systems 2021); splits and leaves of Chen and Guestrin 2016. A round is a tree, or one for every class:

    once in a session
      1   party k    how many bins its columns have                                              -> server
          members    a nonce each, from which the public matrix A follows
      2   party k    H = M A + u a_d + e': its rows' bins M, encrypted                           -> server
    for each round t, and each level of its trees:
      3   server     c = A s + e + Δ m, for m = g and h of the rows of a node, zeros elsewhere   -> every party
      4   party k    y = M c + noise                                                             -> server
          server     M m, gains, the best split of every node
      5   server     the columns and bins of splits that were never asked for                    -> their owner
      6   party k    on which side of them every row is                                          -> server
          server     leaves, scores, evaluation

Of two siblings the sums of the smaller are asked for; the other's are the parent's less these. In the paper the server
sends encrypted gradients once a tree, and every node's rows in the clear; here a node is a vector that is zero outside
it (common/encryption/linear.py), so **no party that follows the protocol learns a gradient, a label, or which rows are
in a node**. With `gradients: clear` all parties see all of these.

**The server learns** the exact sums over bins and, for every split, on which side each row is: names, units and values
of columns stay hidden, the order of their values does not (docs/protocols/secureboost.md).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.boosting import BoostedConfig, check_boosted, scores_of
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.encryption.messages import BLOCK, SUMMED, WIDEST, sum_limits
from colonnade.common.encryption.parameters import SumSize
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

CELLS = 16 * BLOCK
"""Rows of a block of nodes or sides."""
NOISY_BITS = 10
"""Of a gradient in sums with noise, at most."""


class Config(BoostedConfig):
    """Keys under `federation.protocol`."""

    name: Literal["secureboost"] = Field(default="secureboost", description="the protocol; a round is a tree")
    grow: Literal["levels", "best"] = Field(
        default="levels",
        description="all nodes of a level at once, or always the node that gains most: one or two exchanges a split",
    )
    depth: int = Field(
        default=6, ge=1, le=8, description="most splits from the root of a tree to a leaf, if it grows by levels"
    )
    leaves: int = Field(default=31, ge=2, le=256, description="most leaves of a tree, if it grows best first")
    rate: float = Field(default=0.2, gt=0, le=1, description="factor of the leaves")
    gamma: float = Field(default=0.0, ge=0, description="least gain of a split")
    min_hessian: float = Field(default=1.0, gt=0, description="least sum of Hessians on either side of a split")
    columns: float = Field(default=1.0, gt=0, le=1, description="share of the columns that a tree looks at")
    rows: float = Field(default=1.0, gt=0, le=1, description="share of the training rows that a tree is grown on")
    noise: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="deviation of noise that a party adds to every sum over a bin, the largest gradient being 1; it is "
        "no differential privacy: the sides of splits stay exact",
    )

    def bits_of(self, size: SumSize) -> int:
        """Bits of a gradient; fewer with noise, which needs room in the range and would drown finer steps."""
        return min(size.precision - 1, NOISY_BITS) if self.noise else super().bits_of(size)


@message
class Nodes(ServerMessage):
    """Server to party, in the clear and below the root, instead of vectors: the node of each row of a block.

    Args:
        n: the node's number among the level's requested ones, from 1, or 0: for each output base-256 digits, the lowest
            first, uint8 (cells, outputs, digits).
    """

    alike: ClassVar[Alike | None] = Alike(("n",), key=("level", "block"))

    level: int
    block: int
    n: Annotated[Tensor, TensorSpec("cells", "outputs", "digits", dtype="uint8")]


@message
class Sums(PartyMessage):
    """Party to server: y, int64 (bins, vectors)."""

    level: int
    y: Annotated[Released, TensorSpec("bins", "vectors", dtype="int64")]


@message
class Wanted(ServerMessage):
    """Server to party: splits: columns, int64 (records,), and their bins on the left, packed bits (records, left).

    Args:
        first: number of the first; splits with later numbers, from a skipped round, are dropped.
    """

    level: int
    first: int
    columns: Annotated[Tensor, TensorSpec("records", dtype="int64")]
    left: Annotated[Tensor, TensorSpec("records", "left", dtype="uint8")]


@message
class Sides(PartyMessage):
    """Party to server: rows of a block on the left of each split, packed bits, uint8 (records, bytes)."""

    level: int
    block: int
    s: Annotated[Released, TensorSpec("records", "bytes", dtype="uint8")]


def levels(config: Config) -> int:
    """Most levels of a tree; best first, each level has one split."""
    return config.depth if config.grow == "levels" else config.leaves - 1


def splits_at(level: int, federation: FederationConfig, config: Config) -> int:
    """Most splits of a level, from 0."""
    return scores_of(federation) << (level if config.grow == "levels" else 0)


def vectors_at(level: int, federation: FederationConfig, config: Config) -> int:
    """Most vectors of a level, from 0; of two siblings only one's sums are requested."""
    return 2 * splits_at(max(level - 1, 0), federation, config)


def vectors_in(federation: FederationConfig, config: Config) -> int:
    """Most vectors of a round."""
    return sum(vectors_at(level, federation, config) for level in range(levels(config)))


def digits(federation: FederationConfig, config: Config) -> int:
    """Base-256 digits of a requested node's number."""
    return 1 if vectors_at(levels(config) - 1, federation, config) < 2 * 256 else 2


def splits_in(federation: FederationConfig, config: Config) -> int:
    """Most splits of a round."""
    return sum(splits_at(level, federation, config) for level in range(levels(config)))


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    last = levels(config) - 1
    return {
        **sum_limits(federation, vectors_at(last, federation, config)),
        "records": splits_at(last, federation, config),
        "left": WIDEST // 8,
        "bytes": CELLS // 8,
        "cells": CELLS,
        "outputs": scores_of(federation),
        "digits": digits(federation, config),
    }


def check(federation: FederationConfig, config: Config) -> None:
    """Refuses settings that exclude exact sums, and limits of the other growth mode."""
    check_boosted(federation, "the sides of splits")
    if config.noise:
        if federation.task != "classification":
            raise ConfigError(
                "federation.protocol.noise in a regression: its gradients have no largest value", hint="leave it out"
            )
        if config.precision != "auto":
            raise ConfigError("federation.protocol.precision with noise, which decides it", hint="leave it out")
        if federation.public_start:
            raise ConfigError(
                "federation.protocol.noise with public_start: every member could draw the noise", hint="leave one out"
            )
    idle, other = ("leaves", "best") if config.grow == "levels" else ("depth", "levels")
    if getattr(config, idle) != Config.model_fields[idle].default:
        raise ConfigError(
            f"federation.protocol.{idle} with grow = {config.grow}: it bounds trees with grow = {other} alone",
            hint=f"leave it out, or say `grow: {other}`",
        )


CONTRACT = Contract(
    title="SecureBoost: boosted trees, from encrypted sums over the parties' bins",
    source="Cheng et al. 2021; Chen and Guestrin 2016",
    config=Config,
    messages=(*SUMMED, Nodes, Sums, Wanted, Sides),
    limits=limits,
    exchange=Exchange("histograms", "questions"),
    in_step=True,
    vectors=vectors_in,
    check=check,
    sees={
        "server": "exact sums over the bins of every column, and for every split on which side each common row is: the "
        "order of a column's values, but no name, unit or value",
        "party": "which splits of its own columns are used; with `gradients: clear` also GRADIENTS OF ALL TRAINING "
        "ROWS, and the rows of every node",
    },
)
