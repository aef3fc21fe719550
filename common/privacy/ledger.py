"""What left a party, line by line: the party's own record, for its auditors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO

from common.message import Message, dtype_name, payload_bytes, tensors


class Ledger:
    """An append-only file of JSON lines, one for every message, written before the message leaves.

    It lies outside every checkpoint and is never rolled back.

    Args:
        path: where it lies; None keeps none (tests).
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def charge(self, message: Message, to: str, mechanism: str, epsilon: float | None) -> None:
        """Writes down a message that is about to leave.

        Args:
            message: what leaves.
            to: who gets it.
            mechanism: what protects it, or "" if it is no function of private rows.
            epsilon: spent so far, this message included; None without a guarantee.
        """
        if self._path is not None:
            self._file = self._file or self._path.open("a", buffering=1)
            self._file.write(json.dumps(_entry(message, to, mechanism, epsilon)) + "\n")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def _entry(message: Message, to: str, mechanism: str, epsilon: float | None) -> dict[str, Any]:
    fields = tensors(message)
    return {
        "time": round(time.time(), 6),
        "round": message.round,
        "kind": type(message).__name__,
        "to": to,
        "fields": {name: [dtype_name(t.dtype), *t.shape] for name, t in fields.items()},
        "bytes": payload_bytes(message),
        "rows": max((t.shape[0] for t in fields.values() if t.dim()), default=0),
        "mechanism": mechanism,
        "epsilon": epsilon,
    }
