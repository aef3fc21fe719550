"""Exponentiations on several processors.

The library's exponentiation holds Python's lock, so threads do not help: each processor gets a process of its own, a
plain Python program (`python -m colonnade.common.crypto.raising`) that reads tasks from its standard input and writes
results to its standard output. This needs neither a fork of this process, which has threads, nor its main module.

A task is a line of JSON (`scalar`, `tag` for keys that are hashed first, `lengths` of the pieces) and the pieces; a
result is a line (`bytes`, or `refused`) and the elements. Secrets go through the pipe, never on a command line.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import BinaryIO

from colonnade.common.crypto.group import ELEMENT, Secret, hash_to_curve
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.run.python_child import child_environment, python_module

_LEAST = 256  # elements for which another process pays


class Raising:
    """Raises long lists in `processors` processes, started with the first one and ended by `close`.

    Short lists, and all if there is one processor, are raised in this process.
    """

    def __init__(self, processors: int = 1) -> None:
        self._processors = max(1, processors)
        self.workers: list[subprocess.Popen[bytes]] = []

    def elements(self, secret: Secret, elements: bytes) -> bytes:
        if self._alone(len(elements) // ELEMENT) or len(elements) % ELEMENT:
            return secret.raise_all(elements)
        return self._shared(secret, [elements[at : at + ELEMENT] for at in range(0, len(elements), ELEMENT)], b"")

    def keys(self, secret: Secret, keys: Sequence[bytes], tag: bytes) -> bytes:
        if self._alone(len(keys)):
            return secret.raise_all(hash_to_curve(keys, tag))
        return self._shared(secret, keys, tag)

    def close(self) -> None:
        for worker in self.workers:
            assert worker.stdin is not None and worker.stdout is not None  # both are pipes
            with contextlib.suppress(OSError):  # it has died, and the rest cannot be written
                worker.stdin.close()
            worker.stdout.close()
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.workers = []

    def _alone(self, count: int) -> bool:
        return self._processors == 1 or count < _LEAST

    def _shared(self, secret: Secret, pieces: Sequence[bytes], tag: bytes) -> bytes:
        self._start()
        size = -(-len(pieces) // self._processors)
        parts = [pieces[at : at + size] for at in range(0, len(pieces), size)]
        busy = self.workers[: len(parts)]
        try:
            for worker, part in zip(busy, parts, strict=True):
                assert worker.stdin is not None
                task = {"scalar": secret.scalar.hex(), "tag": tag.hex(), "lengths": [len(piece) for piece in part]}
                worker.stdin.write(json.dumps(task).encode() + b"\n" + b"".join(part))
                worker.stdin.flush()
            results = [_result(worker) for worker in busy]
        except (OSError, ValueError) as failed:
            self.close()
            raise EnvironmentFault(
                f"a process that raises keys has ended: {failed}", hint="set `threads: 1`, or give the member memory"
            ) from failed
        if refused := [text for text, _ in results if text]:
            raise InputError(refused[0])
        return b"".join(raised for _, raised in results)

    def _start(self) -> None:
        while len(self.workers) < self._processors:
            worker = subprocess.Popen(  # noqa: S603  # our own command line
                python_module("colonnade.common.crypto.raising"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=child_environment(),
            )  # fmt: skip
            self.workers.append(worker)


def _result(worker: subprocess.Popen[bytes]) -> tuple[str, bytes]:
    assert worker.stdout is not None
    head = json.loads(worker.stdout.readline() or b"")
    raised = worker.stdout.read(head.get("bytes", 0))
    if len(raised) != head.get("bytes", 0):
        raise ValueError("its result is cut short")
    return head.get("refused", ""), raised


def serve(tasks: BinaryIO, results: BinaryIO) -> None:
    while line := tasks.readline():
        task = json.loads(line)
        pieces = [tasks.read(length) for length in task["lengths"]]
        tag, secret = bytes.fromhex(task["tag"]), Secret(bytes.fromhex(task["scalar"]))
        try:
            raised = secret.raise_all(hash_to_curve(pieces, tag) if tag else b"".join(pieces))
            head: dict[str, object] = {"bytes": len(raised)}
        except InputError as refused:
            raised, head = b"", {"refused": str(refused)}
        results.write(json.dumps(head).encode() + b"\n" + raised)
        results.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
