"""What left a party, line by line: the party's own record, for its auditors."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from colonnade.common.errors import EnvironmentFault
from colonnade.common.messaging.message import Message, dtype_name, payload_bytes, schema, tensor_specs, tensors
from colonnade.common.privacy.accounting.chain import Chain
from colonnade.common.runtime.json_lines import read_lines

_ROWS = ("rows", "coded", "keys")  # what dimensions are called whose size is a number of rows


class Ledger:
    """An append-only file of JSON lines, one for every message, written before the message leaves.

    Every line carries a hash over all before it (common/privacy/accounting/chain.py). The file lies outside every
    checkpoint and is never rolled back. What leaves once more after a rollback is written down once more, marked
    `repeat`.

    Args:
        path: where it lies; None keeps none (tests).
        after: the round that was restored: what left after it may leave again.
    """

    def __init__(self, path: Path | None, after: int = 0) -> None:
        self._path = path
        self._chain = None if path is None else Chain(path)
        self._left = set() if path is None else _left_after(path, after)

    def charge(self, message: Message, to: str, mechanism: str, epsilon: float | None) -> None:
        """Writes down a message that is about to leave.

        Args:
            message: what leaves.
            to: who gets it.
            mechanism: what protects it, or "" if it is no function of private rows.
            epsilon: spent so far, this message included; None without a guarantee.
        """
        if self._chain is None:
            return
        entry = _entry(message, to, mechanism, epsilon)
        if self._left and _key(entry) in self._left:
            entry["repeat"] = True
        try:
            self._chain.append(entry)
        except OSError as failed:
            raise EnvironmentFault(
                f"the ledger {self._path} cannot be written: {failed.strerror}; nothing leaves without it",
                hint="make room on the disk, then resume",
            ) from failed

    def close(self) -> None:
        """Closes the file."""
        if self._chain is not None:
            with contextlib.suppress(OSError):  # a line that could not be written was refused already
                self._chain.close()


def _entry(message: Message, to: str, mechanism: str, epsilon: float | None) -> dict[str, Any]:
    fields = tensors(message)
    scalars = {name: getattr(message, name) for name in schema(type(message)) if name not in fields and name != "round"}
    return {
        "time": round(time.time(), 6),
        "round": message.round,
        "kind": type(message).__name__,
        "to": to,
        **({"about": scalars} if scalars else {}),
        "fields": {name: [dtype_name(t.dtype), *t.shape] for name, t in fields.items()},
        "bytes": payload_bytes(message),
        "rows": _rows(message),
        "mechanism": mechanism,
        "epsilon": epsilon,
    }


def _rows(message: Message) -> int:
    """Of how many rows it is, coded ones included; 0 where no tensor has such a dimension."""
    named = [zip(spec.dims, getattr(message, name).shape, strict=True) for name, spec in tensor_specs(type(message))]
    return max((size for dims in named for dim, size in dims if dim in _ROWS), default=0)


def _key(entry: dict[str, Any]) -> str:
    """What makes two entries the same release: everything that says what it is, and not when."""
    return json.dumps([entry.get(part) for part in ("round", "kind", "to", "about")])


def _left_after(path: Path, round: int) -> set[str]:
    """The keys of what has left after a round."""
    return {_key(entry) for entry in read_lines(path) if entry.get("round", 0) > round}
