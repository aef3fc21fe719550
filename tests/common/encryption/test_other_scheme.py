"""Sums by lattices are those that another library's Okamoto-Uchiyama encryption finds, where it is installed.

`pip install sf-heu` (0.5.2b0 on Python 3.11) brings it; the tests need no other use of it.
"""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.common.encryption.parameters import SumSize
from tests.common.encryption.test_linear import Pair, bins

phe = pytest.importorskip("heu", reason="sf-heu is not installed").phe


def test_bins_have_the_same_sums() -> None:
    rows, counts, rng = 120, [3, 7], np.random.default_rng(5)
    size, matrix = SumSize(rows), bins(rng, rows, counts)
    vectors = rng.integers(-(2**size.precision) + 1, 2**size.precision, (rows, 2))
    kit = phe.setup(phe.SchemaType.OU, 2048)
    encryptor, evaluator, decryptor = kit.encryptor(), kit.evaluator(), kit.decryptor()
    dense, theirs = matrix.rows(0, rows).toarray(), np.zeros((sum(counts), 2), np.int64)
    for number, vector in enumerate(vectors.T):
        encrypted = [encryptor.encrypt_raw(int(value)) for value in vector]
        for bin, line in enumerate(dense):
            total = encryptor.encrypt_raw(0)
            for row in np.flatnonzero(line):
                evaluator.add_inplace(total, encrypted[row])
            theirs[bin, number] = decryptor.decrypt_raw(total)
    assert np.array_equal(Pair(size, matrix).sums(vectors), theirs)
