"""Ledger of the messages that left a party: the party's own record, for its auditors."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.common.errors import EnvironmentFault
from colonnade.common.messaging.message import Message, dtype_name, payload_bytes, schema, tensor_specs, tensors
from colonnade.common.privacy.accounting.chain import Chain
from colonnade.common.run.json_text import read_lines

_ROWS = {"rows": 0, "coded": 0, "keys": 0, "lines": 1}  # dimensions that count rows, and how many more than these
_FAILURE = "Failure"
_SHORT = 64  # characters or numbers that are written out


class Ledger:
    """An append-only file of JSON lines, one per message, written before the message is sent.

    Every line carries a hash over all earlier ones (common/privacy/accounting/chain.py). The file is not part of
    checkpoints and is never rolled back. Messages sent again after a rollback are recorded again, marked `repeat`.

    Args:
        path: of the file; None for no file (tests).
        after: the restored round: messages of later rounds may be sent again.
    """

    def __init__(self, path: Path | None, after: int = 0) -> None:
        self._path = path
        self._chain = None if path is None else Chain(path)
        self._left = set() if path is None else _left_after(path, after)

    def charge(self, message: Message, to: str, mechanism: str, epsilon: float | None) -> None:
        """Records a message that is about to be sent.

        Args:
            mechanism: that protects it, or "" if it is not a function of private rows.
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
            raise self._full(failed) from failed

    def note(self, notice: object, to: str) -> None:
        """Records a control message that is about to be sent: no tensor, and of rows at most their number.

        Its line names the kind under `control`, so that readers of messages pass it over. A notice that this party
        has failed is not held back by a disk that takes no line.

        Raises:
            EnvironmentFault: as `charge`, for any other notice.
        """
        if self._chain is None:
            return
        kind = type(notice).__name__
        entry = {"time": round(time.time(), 6), "control": kind, "to": to, "about": _about(notice)}
        try:
            self._chain.append(entry)
        except OSError as failed:
            if kind != _FAILURE:
                raise self._full(failed) from failed

    def _full(self, failed: OSError) -> EnvironmentFault:
        return EnvironmentFault(
            f"the ledger {self._path} cannot be written: {failed.strerror}; nothing leaves without it",
            hint="make room on the disk, then resume",
        )

    def close(self) -> None:
        if self._chain is not None:
            with contextlib.suppress(OSError):  # a failed write was reported already
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


def _about(notice: object) -> dict[str, Any]:
    """What a notice says: numbers and short words as they are, of anything longer its size."""
    said: dict[str, Any] = {}
    for field in dataclasses.fields(notice):  # type: ignore[arg-type]  # every notice is a dataclass
        value = getattr(notice, field.name)
        if value is None or (isinstance(value, bytes | Mapping | str | tuple) and not len(value)):
            continue
        long = isinstance(value, bytes | Mapping) or (isinstance(value, str | tuple) and len(value) > _SHORT)
        said[field.name] = {"size": len(value)} if long else value
    return said


def _rows(message: Message) -> int:
    """Number of rows in the message, coded ones included; 0 if no tensor has such a dimension."""
    named = [zip(spec.dims, getattr(message, name).shape, strict=True) for name, spec in tensor_specs(type(message))]
    return max((size - _ROWS[dim] for dims in named for dim, size in dims if dim in _ROWS and size), default=0)


def _key(entry: dict[str, Any]) -> str:
    """Identity of a release: round, kind, receiver and subject, not the time."""
    return json.dumps([entry.get(part) for part in ("round", "kind", "to", "about")])


def _left_after(path: Path, round: int) -> set[str]:
    rounds = ((entry, entry.get("round", 0)) for entry in read_lines(path))
    return {_key(entry) for entry, of in rounds if isinstance(of, int) and of > round}  # else it was altered
