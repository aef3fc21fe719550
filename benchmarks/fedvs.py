"""FedVS's arithmetic: modular products against float64 BLAS, masks against the bare keystream, a round's coding.

Everything is measured in turn on one thread, in processor time, which other load affects least; medians are compared. A
modular product contains two float64 products of its own shape, so its ratio is at least about two.

The round is FedVS's on FashionMNIST: 28 parties with 28 of the 784 pixels each, a batch of 256 coded rows, K = 6, T =
1, so that R = 13 answers decode. Its floor is a float64 product of the shapes that the coding multiplies.
"""

from __future__ import annotations

import os

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from benchmarks.report import Figure, times
from benchmarks.runs import rounds_in_turn
from colonnade.common.aggregation.field import Field, secure_elements
from colonnade.common.aggregation.lagrange import agreed_code

PRIMES = {"2^26 - 5": 2**26 - 5, "2^31 - 1": 2**31 - 1}
SHAPES = ((1024, 784, 64), (256, 784, 128))
BOUNDS = {"2^26 - 5": 4.5, "2^31 - 1": 5.5}
PARTIES, SEGMENTS, MASKS = 28, 6, 1
COLUMNS, ROWS, WIDTH = 28, 256, 64


def main() -> list[Figure]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    figures = [_product(name, shape) for name in PRIMES for shape in SHAPES]
    return figures + [_masks(p) for p in PRIMES] + [figure for p in PRIMES for figure in _round(p)]


def _product(name: str, shape: tuple[int, int, int]) -> Figure:
    (m, k, n), field = shape, Field(PRIMES[name])
    left, right = torch.randint(field.p, (m, k)), torch.randint(field.p, (k, n))
    one, other = left.double(), right.double()
    floor, ours = times(lambda: one @ other, lambda: field.matmul(left, right))
    return Figure(f"{m} x {k} x {n} modulo {name}", ours, BOUNDS[name], "ms", floor, "float64 BLAS")


def _masks(name: str) -> Figure:
    count, draw = 2**20, secure_elements(PRIMES[name])
    zeros = bytes(4 * count)

    def keystream() -> object:
        return Cipher(ChaCha20(os.urandom(32), bytes(16)), mode=None).encryptor().update(zeros)

    floor, ours = times(keystream, lambda: draw((count,)))
    return Figure(f"2^20 masks modulo {name}", ours, 2.0, "ms", floor, "their keystream, 4 bytes each")


def _round(name: str) -> list[Figure]:
    field = Field(PRIMES[name])
    code = agreed_code(field, SEGMENTS, MASKS, PARTIES)
    model, masks = torch.randint(field.p, (COLUMNS, WIDTH)), torch.randint(field.p, (MASKS, COLUMNS, WIDTH))
    answers, senders = torch.randint(field.p, (code.threshold, ROWS, WIDTH)), list(range(code.threshold))
    generator, wide = torch.randn(PARTIES, 1 + MASKS).double(), torch.randn(1 + MASKS, COLUMNS * WIDTH).double()
    matrix, flat = torch.randn(SEGMENTS, code.threshold).double(), answers.flatten(1).double()
    encode_floor, encode, decode_floor, decode = times(
        lambda: generator @ wide,
        lambda: code.encode_same(model, masks),
        lambda: matrix @ flat,
        lambda: code.decode(senders, answers),
    )
    against = "the same in float64"
    return [
        Figure(f"a party's model into {PARTIES} shares, {name}", encode, 30.0, "ms", encode_floor, against),
        Figure(f"{SEGMENTS} sums from {code.threshold} answers, {name}", decode, 30.0, "ms", decode_floor, against),
    ]


_SETS = (
    "federation.rounds=60", "federation.epochs=0", "federation.evaluate.every=1000", "federation.rows.validation=0",
    "federation.rows.test=256",
)  # fmt: skip


def coded() -> list[Figure]:
    """Cost of coding without stragglers: a FedVS round among 28 parties against the same in plaintext.

    Fashion-MNIST, K = 6, T = 1, batches of 256 (experiments/fedvs/fashion.yaml), split_avg with the same networks, as
    processes over mutual TLS.
    """
    plain, ours = rounds_in_turn(*((f"{name}/fashion.yaml", *_SETS) for name in ("split_avg", "fedvs")), times=1)
    return [Figure("FedVS round, 28 parties, K = 6, T = 1, batch 256", ours, 6, "ms", plain, "split_avg")]
