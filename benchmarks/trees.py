"""A tree of SecureBoost on Adult: encrypted against its bare arithmetic, clear against scikit-learn's.

Three parties over mutual TLS, 34,000 training rows, depth 5. The arithmetic of a tree is the encryption of its vectors,
one party's sums of them over all fourteen columns, and their decryption, one after the other in one process.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.report import Figure, median
from benchmarks.runs import run
from colonnade.common.encryption.linear import Bins, Hint, Holder, Sender, public_matrix
from colonnade.common.encryption.parameters import DEGREE, SumSize

ROWS, COLUMNS, BINS, DEPTH, TREES = 34_189, 14, 54, 5, 20
_FIRST = 3  # trees excluded: hints are made in the first
_PARTIES = {
    "capital": ["age", "education", "education-num", "capital-gain", "capital-loss"],
    "home": ["marital-status", "relationship", "sex", "race", "native-country", "fnlwgt"],
    "work": ["workclass", "occupation", "hours-per-week"],
}


def main() -> list[Figure]:
    bare, encrypted, clear, theirs = _bare(), _tree("encrypted"), _tree("clear"), _scikit()
    return [
        Figure("encrypted tree, three parties", 1e3 * encrypted, 2.0, "ms", 1e3 * bare, "bare arithmetic, one process"),
        Figure("100 encrypted trees", 100 * encrypted, 90.0, "s"),
        Figure("clear tree, three parties", 1e3 * clear, None, "ms", 1e3 * theirs, "HistGradientBoosting, one process"),
        Figure("100 clear trees", 100 * clear, 10.0, "s"),
    ]


def _tree(gradients: str) -> float:
    """Median seconds of a round after the first ones."""
    adult = {"source": "adult", "folder": "adult"}
    config: dict[str, Any] = {
        "federation": {
            "id": "trees", "protocol": {"name": "secureboost", "gradients": gradients, "depth": DEPTH}, "classes": 2,
            "parties": list(_PARTIES), "rounds": TREES, "batch": 4096, "seed": 0, "stop": "none",
            "rows": {"validation": 0, "test": 0.3}, "evaluate": {"every": TREES},
        },
        "server": {"labels": adult},
        "every_party": {"data": adult},
        "parties": {name: {"data": {"columns": columns}} for name, columns in _PARTIES.items()},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "run.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return median([event["seconds"] for event in run(str(file)).rounds()[_FIRST:]])


def _bare() -> float:
    """Median seconds of one tree's arithmetic: the vectors of DEPTH levels."""
    torch.set_num_threads(1)
    draws, size = np.random.default_rng(0), SumSize(ROWS)
    public = public_matrix([b"bare"], size)
    sender = Sender(size, public)
    holder = Holder(size, public, Bins(draws.integers(BINS, size=(ROWS, COLUMNS)), [BINS] * COLUMNS))
    hint = Hint(np.concatenate(list(holder.hint())))
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        for groups in (1, *(2**level for level in range(DEPTH - 1))):
            vectors = draws.integers(-(2**size.precision), 2**size.precision, size=(ROWS, 2 * groups))
            keys = sender.keys(2 * groups)
            answer = holder.begin(keys.dummy)
            for first in range(0, ROWS, 4 * DEGREE):
                answer.add(sender.encrypt(keys, vectors[first : first + 4 * DEGREE], first // DEGREE))
            sender.decrypt(hint, keys, answer.end())
        found.append(time.perf_counter() - begin)
    return median(found)


def _scikit() -> float:
    """Seconds a tree on as many rows, columns and bins."""
    draws = np.random.default_rng(0)
    x, y = draws.integers(BINS, size=(ROWS, COLUMNS)).astype(float), draws.integers(2, size=ROWS)
    model = HistGradientBoostingClassifier(max_iter=100, max_depth=DEPTH, early_stopping=False)
    begin = time.perf_counter()
    model.fit(x, y)
    return (time.perf_counter() - begin) / 100
