"""Messages of sums under encryption: how a session opens, and vectors.

    once in a session
      1   party k    how many bins its columns have                                              -> server
          members    a nonce each, from which the public matrix A follows
      2   party k    H = M A + u a_d + e': its rows' bins M, encrypted                           -> server
    whenever there are vectors m
      3   server     c_d, and c = A s + e + Δ m in blocks of rows                                -> every party

What a party answers is its protocol's. Where the server returns something to it, a probe comes first (probe.py):

    4   server     c of zeros                                                                  -> every party
        party k    a hash of its sums -> server;  server: the seed of c -> every party;  party k: its sums -> server
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from colonnade.common.config.federation import FederationConfig
from colonnade.common.encryption.parameters import DEGREE
from colonnade.common.messaging.fields import MaskedTensor, Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

BLOCK = 4 * DEGREE  # rows of a block of ciphertexts or sides
PART = 256  # bins of a part of a hint
NONCE = 32  # bytes of a nonce
COLUMNS, BINS = 4096, 2**16  # columns of a party, and bins of all of them, at most
WIDEST = 256  # bins of a column, at most
WORDS, MISSING, RISING, FALLING = 1, 2, 4, 8
"""Kinds of a column, added up: of words, with a last bin of missing values, and directions of numbers."""
KINDS = frozenset({0, 1, 2, 3, 4, 6, 8, 10})  # the sums that there are


@message
class BinCounts(PartyMessage):
    """Party to server: bins of its columns, int64 (columns,); kinds of the columns, uint8 (columns,); a nonce.

    Args:
        kinds: one of KINDS each.
    """

    counts: Annotated[Released, TensorSpec("columns", dtype="int64")]
    kinds: Annotated[Released, TensorSpec("columns", dtype="uint8")]
    nonce: Annotated[Tensor, TensorSpec("nonce", dtype="uint8", public="random")]


@message
class Nonces(ServerMessage):
    """Server to party: all members' nonces, the server's first, uint8 (members, nonce)."""

    alike: ClassVar[Alike | None] = Alike(("nonces",))

    nonces: Annotated[Tensor, TensorSpec("members", "nonce", dtype="uint8")]


@message
class HintPart(PartyMessage):
    """Party to server: words of H, int64 (part, degree)."""

    part: int
    h: Annotated[MaskedTensor, TensorSpec("part", "degree", dtype="int64")]


@message
class Masks(ServerMessage):
    """Server to party: c_d of the vectors that follow, int64 (degree, vectors); no rows where they are clear.

    Args:
        level: depth in a tree, from 0; 0 without trees.
    """

    alike: ClassVar[Alike | None] = Alike(("d",), key=("level",))

    level: int
    d: Annotated[Tensor, TensorSpec("degree", "vectors", dtype="int64")]


@message
class Vectors(ServerMessage):
    """Server to party: c of a block of training rows, int64 (rows, vectors): gradients' vectors, then Hessians'."""

    alike: ClassVar[Alike | None] = Alike(("c",), key=("level", "block"))

    level: int
    block: int
    c: Annotated[Tensor, TensorSpec("rows", "vectors", dtype="int64")]


@message
class ProbeDigest(PartyMessage):
    """Party to server: a hash of its answer to a probe, uint8 (digest,)."""

    digest: Annotated[Tensor, TensorSpec("digest", dtype="uint8", public="a hash of unpredictable noise")]


@message
class ProbeSeed(ServerMessage):
    """Server to party: the seed of the probe's vectors, uint8 (nonce,)."""

    alike: ClassVar[Alike | None] = Alike(("seed",))

    seed: Annotated[Tensor, TensorSpec("nonce", dtype="uint8")]


@message
class ProbeSums(PartyMessage):
    """Party to server: its answer, noise about zeros, int64 (bins, vectors)."""

    y: Annotated[Released, TensorSpec("bins", "vectors", dtype="int64")]


@message
class MaskedSums(PartyMessage):
    """Party to server: M c + u c_d under a mask, int64 (bins, vectors)."""

    y: Annotated[MaskedTensor, TensorSpec("bins", "vectors", dtype="int64")]


@message
class OpenedSums(ServerMessage):
    """Server to party: its own sums, still under its mask, int64 (bins, vectors), and the vectors' units.

    Args:
        rate: factor of this round's steps.
        units: float64 (vectors,).
    """

    rate: float
    units: Annotated[Tensor, TensorSpec("vectors", dtype="float64")]
    y: Annotated[Tensor, TensorSpec("bins", "vectors", dtype="int64")]


SUMMED = (BinCounts, Nonces, HintPart, Masks, Vectors)  # message kinds that a contract adds to its own
RETURNED = (ProbeDigest, ProbeSeed, ProbeSums, MaskedSums, OpenedSums)
"""Likewise, where sums go back to their owner, after a probe of its hint (probe.py)."""
DIGEST = 32
PROBE = 1  # level of a probe's vectors


def sum_limits(federation: FederationConfig, vectors: int) -> dict[str, int]:
    """The largest value of their dimensions, for this many vectors at a time."""
    return {
        "columns": COLUMNS,
        "nonce": NONCE,
        "digest": DIGEST,
        "members": 1 + len(federation.parties),
        "part": PART,
        "degree": DEGREE,
        "rows": BLOCK,
        "vectors": vectors,
        "bins": BINS,
    }
