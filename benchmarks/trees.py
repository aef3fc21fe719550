"""A tree of SecureBoost on Adult: encrypted against its bare arithmetic, clear against scikit-learn's.

Three parties over mutual TLS, 34,000 training rows, depth 5. The arithmetic of a tree is the encryption of its vectors,
one party's sums of them over all fourteen columns, and their decryption, one after the other in one process.
"""

from __future__ import annotations

import importlib
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import free_port, run
from colonnade.common.encryption.linear import Bins, Hint, Holder, Sender, public_matrix, rounded
from colonnade.common.encryption.messages import BLOCK
from colonnade.common.encryption.parameters import DEGREE, SumSize
from colonnade.common.encryption.probe import Probe, ProbeAnswer, digest

_PATIENCE = 600.0  # seconds


def seconds_a_tree(rows: int, columns: int, bins: int, depth: int, trees: int, parties: int) -> float | None:
    """Median seconds of a round; None if no XGBoost of these versions is installed."""
    if find_spec("xgboost") is None or not import_module("xgboost").build_info().get("USE_FEDERATED"):
        return None
    spawn = multiprocessing.get_context("spawn")
    port = free_port()
    found: Queue[list[float]] = spawn.Queue()
    server = spawn.Process(target=_serve, args=(port, parties), daemon=True)
    server.start()
    time.sleep(2)  # it has no other sign of being ready
    of = (rows, columns, bins, depth, trees)
    members = [spawn.Process(target=_train, args=(port, n, parties, of, found), daemon=True) for n in range(parties)]
    for member in members:
        member.start()
    try:
        return median(found.get(timeout=_PATIENCE)[_FIRST:])
    finally:
        for process in (*members, server):
            process.terminate()


def _serve(port: int, parties: int) -> None:
    import_module("xgboost.federated").run_federated_server(n_workers=parties, port=port)


def _train(port: int, number: int, parties: int, of: tuple[int, ...], found: Queue[list[float]]) -> None:
    rows, columns, bins, depth, trees = of
    xgboost: Any = import_module("xgboost")
    draws = np.random.default_rng(0)
    x, y = draws.integers(bins, size=(rows, columns)).astype(float), draws.integers(2, size=rows)
    own = np.array_split(np.arange(columns), parties)[number]
    ends: list[float] = []

    class Clock(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, *_of: object) -> bool:
            ends.append(time.perf_counter())
            return False

    settings = {"max_depth": depth, "eta": 0.1, "max_bin": 64, "objective": "binary:logistic", "nthread": 1}
    place = {"federated_server_address": f"127.0.0.1:{port}", "federated_world_size": parties}
    with xgboost.collective.CommunicatorContext(dmlc_communicator="federated", federated_rank=number, **place):
        data = xgboost.DMatrix(x[:, own], label=None if number else y, data_split_mode=1)
        xgboost.train(settings, data, trees, callbacks=[Clock()])
    if number == 0:
        found.put(np.diff(ends).tolist())


ROWS, COLUMNS, BINS, DEPTH, TREES = 34_189, 14, 54, 5, 20
_FIRST = 3  # trees excluded: hints are made in the first
_PARTIES = {
    "capital": ["age", "education", "education-num", "capital-gain", "capital-loss"],
    "home": ["marital-status", "relationship", "sex", "race", "native-country", "fnlwgt"],
    "work": ["workclass", "occupation", "hours-per-week"],
}


def main() -> list[Figure]:
    (_, bare), encrypted, clear, theirs = _bare(ROWS, COLUMNS, BINS), _tree("encrypted"), _tree("clear"), _scikit()
    rival, classical = seconds_a_tree(ROWS, COLUMNS, BINS, DEPTH, TREES, len(_PARTIES)), _okamoto_uchiyama()
    return [
        Figure("encrypted tree, three parties", 1e3 * encrypted, 2.0, "ms", 1e3 * bare, "bare arithmetic, one process"),
        Figure("100 encrypted trees", 100 * encrypted, 90.0, "s"),
        Figure("clear tree, three parties", 1e3 * clear, None, "ms", 1e3 * theirs, "HistGradientBoosting, one process"),
        Figure("100 clear trees", 100 * clear, 10.0, "s"),
        *([] if rival is None else [
            Figure("encrypted tree", 1e3 * encrypted, None, "ms", 1e3 * rival, "XGBoost federated, in the clear"),
            Figure("clear tree", 1e3 * clear, None, "ms", 1e3 * rival, "XGBoost federated, in the clear"),
        ]),
        *([] if classical is None else [
            Figure("encrypted tree", 1e3 * encrypted, None, "ms", 1e3 * classical, "arithmetic of Okamoto-Uchiyama")
        ]),
    ]  # fmt: skip


def wide() -> list[Figure]:
    """Encrypted trees on as many rows and columns with 255 bins in every column."""
    draws = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        path, rows = Path(scratch) / "table.csv", round(ROWS / 0.7)
        names = [f"c{number}" for number in range(COLUMNS)]
        table = np.column_stack([np.arange(rows), draws.integers(2, size=rows), draws.normal(size=(rows, COLUMNS))])
        form = ["%d", "%d", *["%.5f"] * COLUMNS]
        np.savetxt(path, table, form, ",", header=",".join(["key", "label", *names]), comments="")
        source = {"source": "csv", "path": str(path), "key": "key"}
        parts = np.array_split(names, len(_PARTIES))
        data = {name: {**source, "columns": part.tolist()} for name, part in zip(_PARTIES, parts, strict=True)}
        tree = _tree("encrypted", {**source, "label": "label"}, data, bins=255)
    return [Figure("100 encrypted trees, 255 bins in each of 14 columns", 100 * tree, 150.0, "s")]


def shapes() -> list[Figure]:
    """Rounds of an additive model on the same tables: vectors, masked sums that go back, and blinded scores."""
    torch.set_num_threads(1)
    once, bare = _bare_round()
    seconds = _seconds({"name": "additive"})
    return [
        Figure("additive round, three parties", 1e3 * seconds, None, "ms", 1e3 * bare, "bare arithmetic, one process"),
        Figure("its session: hints and probe, bare", once, None, "s"),
        Figure("200 additive rounds", 200 * seconds, 20.0, "s"),
    ]


def large() -> list[Figure]:
    """Sums for a tree on 1,000,000 rows of 20 columns, in one process, streamed in blocks."""
    rows, columns, bins = 1_000_000, 20, 64
    once, tree = _bare(rows, columns, bins, trees=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    vectors = 2 * 2 ** (DEPTH - 1)
    return [
        Figure("table of 1,280 bins encrypted, 1,000,000 rows", once, 60.0, "s"),
        Figure("its tree: encryption, sums, decryption", tree, None, "s"),
        Figure("a tree to every party", 8e-6 * vectors * rows, None, "MB"),
        Figure("peak memory of the process", peak, None, "MB"),
    ]


_ADULT = {"source": "adult", "folder": "adult"}
_ADULTS = {name: {**_ADULT, "columns": columns} for name, columns in _PARTIES.items()}


def _tree(
    gradients: str, labels: Mapping[str, Any] = _ADULT, data: Mapping[str, Any] = _ADULTS, bins: int = 64
) -> float:
    return _seconds({"name": "secureboost", "gradients": gradients, "depth": DEPTH, "bins": bins}, labels, data)


def _seconds(
    protocol: Mapping[str, Any], labels: Mapping[str, Any] = _ADULT, data: Mapping[str, Any] = _ADULTS
) -> float:
    """Median seconds of a round after the first ones."""
    config: dict[str, Any] = {
        "federation": {
            "id": "trees", "classes": 2, "parties": list(_PARTIES), "rounds": TREES, "batch": 4096, "seed": 0,
            "protocol": dict(protocol), "stop": "none",
            "rows": {"validation": 0, "test": 0.3}, "evaluate": {"every": TREES},
        },
        "server": {"labels": dict(labels)},
        "parties": {name: {"data": own} for name, own in data.items()},
    }  # fmt: skip
    return run(config).round_seconds(_FIRST)


class _Bare:
    """The arithmetic of sums over a table without a protocol; `seconds` are those of the table's hint."""

    def __init__(self, rows: int, columns: int, bins: int) -> None:
        torch.set_num_threads(1)
        self.draws, self.rows, self.size = np.random.default_rng(0), rows, SumSize(rows)
        self.public = public_matrix([b"bare"], self.size)
        self.sender = Sender(self.size, self.public)
        codes = self.draws.integers(bins, size=(rows, columns), dtype=np.uint8)
        self.holder = Holder(self.size, self.public, Bins(codes, [bins] * columns))
        begin = time.perf_counter()
        self.hint = Hint(np.concatenate(list(self.holder.hint())))
        self.seconds = time.perf_counter() - begin

    def vectors(self, rows: int, count: int) -> NDArray[np.int64]:
        largest = 2**self.size.precision
        return self.draws.integers(-largest, largest, size=(rows, count))


def _bare(rows: int, columns: int, bins: int, trees: int = 3) -> tuple[float, float]:
    """Seconds of a table's hint, and median seconds of one tree's arithmetic: the vectors of DEPTH levels."""
    bare, block = _Bare(rows, columns, bins), 4 * DEGREE

    def tree() -> None:
        for groups in (1, *(2**level for level in range(DEPTH - 1))):
            keys = bare.sender.keys(2 * groups)
            answer = bare.holder.begin(keys.dummy)
            for first in range(0, rows, block):
                vectors = bare.vectors(min(block, rows - first), 2 * groups)
                answer.add(bare.sender.encrypt(keys, vectors, first // DEGREE))
            bare.sender.decrypt(bare.hint, keys, answer.end())

    return bare.seconds, median(in_turn(tree, repeats=trees)[0])


def _okamoto_uchiyama(times: int = 1000) -> float | None:
    """Seconds of a tree's arithmetic by sf-heu, None if it is not installed: gradients and Hessians encrypted together,
    added up over the rows of asked nodes, and every sum decrypted. Nodes are not hidden.
    """
    try:
        phe = importlib.import_module("heu").phe
    except ImportError:
        return None
    kit = phe.setup(phe.SchemaType.OU, 2048)
    encryptor, evaluator, decryptor = kit.encryptor(), kit.evaluator(), kit.decryptor()
    ciphers = [encryptor.encrypt_raw(number) for number in range(times)]
    total, halves = encryptor.encrypt_raw(0), (DEPTH - 1) / 2

    def each(once: Callable[[int], object]) -> float:
        begin = time.perf_counter()
        for number in range(times):
            once(number)
        return (time.perf_counter() - begin) / times

    encrypted = ROWS * each(encryptor.encrypt_raw)
    added = ROWS * COLUMNS * (1 + halves) * each(lambda number: evaluator.add_inplace(total, ciphers[number]))
    return encrypted + added + COLUMNS * BINS * 2 ** (DEPTH - 1) * each(lambda n: decryptor.decrypt_raw(ciphers[n]))


def _bare_round() -> tuple[float, float]:
    """Seconds of the hint and of the probe, and median seconds of a round's arithmetic, of all columns as one party."""
    bare, found = _Bare(ROWS, COLUMNS, BINS), []
    begin = time.perf_counter()
    probe = Probe(bare.size, bare.public, bytes(32))
    answer, blocks = bare.holder.begin(probe.dummy), list(probe.blocks())
    for c in blocks:
        answer.add(c)
    probe.refuse(bare.hint, ProbeAnswer(bare.size, bare.public, answer, digest(probe.dummy, *blocks)).open(bytes(32)))
    once = bare.seconds + time.perf_counter() - begin
    for _ in range(TREES):
        vectors = bare.vectors(ROWS, 2)
        begin = time.perf_counter()
        keys = bare.sender.keys(2)
        answer = bare.holder.begin(keys.dummy)
        for first in range(0, ROWS, BLOCK):
            answer.add(bare.sender.encrypt(keys, vectors[first : first + BLOCK], first // DEGREE))
        masked, mask = answer.masked()
        rounded(bare.size, bare.sender.opened(bare.hint, keys, masked) - mask)
        found.append(time.perf_counter() - begin)
    return once, median(found)


def _scikit() -> float:
    """Seconds a tree on as many rows, columns and bins."""
    draws = np.random.default_rng(0)
    x, y = draws.integers(BINS, size=(ROWS, COLUMNS)).astype(float), draws.integers(2, size=ROWS)
    model = HistGradientBoostingClassifier(max_iter=100, max_depth=DEPTH, early_stopping=False)
    begin = time.perf_counter()
    model.fit(x, y)
    return (time.perf_counter() - begin) / 100
