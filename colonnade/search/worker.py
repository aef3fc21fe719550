"""A worker process (`python -m colonnade.search.worker`): reads tasks and writes results, as lines."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO

from colonnade.common.run.permissions import keep_private
from colonnade.search.references import ReferenceTask, fit_reference
from colonnade.search.simulated import Diverged, Listen, Result, Task, failure, perform


def main() -> None:
    """Works until the input ends, even in the middle of a simulation."""
    keep_private()
    said = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")  # written only here: prints go to the error stream
    os.dup2(2, 1)
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(heard,), daemon=True).start()
    while True:
        _write(said, _work(heard.get(), said, heard))


def _work(task: Mapping[str, Any], said: TextIO, heard: queue.SimpleQueue[Any]) -> dict[str, Any]:
    def listen(number: int, metrics: Mapping[str, float], last: bool) -> bool:
        _write(said, {"evaluation": number, "metrics": dict(metrics), "last": last})
        return bool(heard.get())

    try:
        return {"result": asdict(_performed(task, listen))}
    except Exception as error:  # noqa: BLE001  # no error may stop the next task
        reason, hint = failure(error)
        return {"failed": reason, "hint": hint, "diverged": isinstance(error, Diverged)}


def _performed(task: Mapping[str, Any], listen: Listen) -> Result:
    if "reference" in task:
        return fit_reference(ReferenceTask(**{**task, "columns": tuple(task["columns"])}), listen)
    return perform(Task(**{**task, "held": tuple(task["held"])}), listen)


def _listen(heard: queue.SimpleQueue[Any]) -> None:
    for line in sys.stdin:
        heard.put(json.loads(line))
    os._exit(0)


def _write(said: TextIO, content: dict[str, Any]) -> None:
    said.write(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
