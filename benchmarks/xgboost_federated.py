"""XGBoost's own split by columns, a rival of `trees`: its federated mode, in which all parties see the gradients.

Version 3.4 removed it; `pip install "xgboost<3.4"` brings it. Three processes and a server without TLS.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.queues import Queue
from typing import Any

import numpy as np

from benchmarks.report import median

_FIRST, _PATIENCE = 3, 600.0  # rounds that are left out; seconds


def seconds_a_tree(rows: int, columns: int, bins: int, depth: int, trees: int, parties: int) -> float | None:
    """Median seconds of a round; None if no XGBoost of these versions is installed."""
    if find_spec("xgboost") is None or not import_module("xgboost").build_info().get("USE_FEDERATED"):
        return None
    spawn = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
