"""Cost of FedVS's coding for every number of segments that a roster allows; `colonnade check` prints it.

A larger K leaves each party less to compute and fewer parties that may be late: R = 2 (K + T - 1) + 1 responses decode
(Li, Yao, Liu 2023, Theorem 5.1 and Section 5.3). Bytes are those of the tensors, counted from the messages of
common/protocols/fedvs.py; a test compares them with a simulated run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.common.aggregation.coded_rows import CodedRows
from colonnade.common.aggregation.masked_sums import confirmed
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.crypto.lengths import OVERHEAD, PROOF_BYTES
from colonnade.common.data.rows import Partition
from colonnade.common.protocols.fedvs import Config

_ELEMENT, _LENGTH = 4, 8  # bytes of an int32 and of an int64


@dataclass(frozen=True)
class CodingCost:
    """Cost of one K. Tuples hold one number a party, in the roster's order.

    Args:
        segments: K.
        answers: R, the responses needed to decode.
        stragglers: N - R, that a round need not wait for.
        rows: real ones of a full batch.
        work: a party's multiplications for a full batch, relative to its own embeddings of a plain batch.
        up, down: bytes of a training round with a full batch and everyone's shares, proofs of the set among them unless
            it can only be all. The server's signature on the set, 70 to 72 bytes, is not among them.
        preparation_up, preparation_down: bytes of sharing the data, once.
    """

    segments: int
    answers: int
    stragglers: int
    rows: int
    work: tuple[float, ...]
    up: tuple[int, ...]
    down: tuple[int, ...]
    preparation_up: tuple[int, ...]
    preparation_down: tuple[int, ...]


def coding_costs(federation: FederationConfig, columns: Sequence[int], partition: Partition) -> list[CodingCost]:
    """Costs of K = 1, 2 .. while N - R is at least 0 and there are training rows.

    Args:
        federation: the agreed section of a `fedvs` federation.
        columns: of every party's data, powers and bias included, in the roster's order.
        partition: row numbers of the parts.
    """
    config = federation.protocol
    assert isinstance(config, Config)  # callers check it
    largest = min(config.most_segments(len(columns), 0), len(partition.train))
    return [_cost(federation, config, columns, partition, segments) for segments in range(1, largest + 1)]


def _cost(
    federation: FederationConfig, config: Config, columns: Sequence[int], partition: Partition, segments: int
) -> CodingCost:
    rows, parties = CodedRows(partition, segments, federation), len(columns)
    answers, real = 2 * (segments + config.masks - 1) + 1, segments * rows.batch
    answer = _ELEMENT * rows.batch * config.embedding
    models = [_box(config, count * config.embedding, rows.batch) for count in columns]
    bundles, proofs = _bundles(models), PROOF_BYTES * parties if confirmed(federation) else 0
    chunks = [len(chunk.positions) for chunk in rows.chunks(config.chunk)]
    data = [[_ELEMENT * coded * count + OVERHEAD for count in columns] for coded in chunks]
    received = [sum(sizes) for sizes in zip(*map(_bundles, data), strict=True)]
    return CodingCost(
        segments,
        answers,
        parties - answers,
        real,
        work=tuple(rows.batch * sum(columns) / (federation.batch * count) for count in columns),
        # Shares, Opened, SetProof, Answer; Bundle, Senders, SetProofs, Gradient
        up=tuple((parties - 1) * box + parties + proofs + answer for box in models),
        down=tuple(bundle + parties + proofs + _gradient(federation, real, config.embedding) for bundle in bundles),
        preparation_up=tuple((parties - 1) * sum(boxes) for boxes in zip(*data, strict=True)),
        preparation_down=tuple(_LENGTH * parties + size for size in received),  # Preparation's columns, Bundles
    )


def _box(config: Config, elements: int, coded: int) -> int:
    """Bytes of a sealed share of a model; with masked responses, shares of masks are appended."""
    masks = coded * config.embedding if config.masked_answers else 0
    return _ELEMENT * (elements + masks) + OVERHEAD


def _bundles(boxes: Sequence[int]) -> list[int]:
    """Bytes forwarded to every party: the others' boxes, and the length of each."""
    return [sum(boxes) - own + _LENGTH * len(boxes) for own in boxes]


def _gradient(federation: FederationConfig, rows: int, width: int) -> int:
    return form_of(federation.compress.down).size((rows, width))
