"""A member's alignment on its own disk: the rows that it uses, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.store import KeptAlignment
from colonnade.common.errors import CheckpointError, DataError
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.common.run.run_cache import RunCache

_NAME = "alignment"
_BYTES = ("identity", "terms", "keys")


@dataclass(frozen=True)
class AlignmentRecord:
    """The row numbers of an alignment, stored under its number, which the server draws; `keys` are the current ones."""

    run_cache: RunCache
    keys: RowKeys
    member: str

    @property
    def number(self) -> str:
        """Number of the stored alignment; "" if there is none."""
        return self.run_cache.number(_NAME)

    def keep(self, number: str, rows: Tensor, identity: str = "", terms: bytes = b"") -> None:
        """Stores row numbers, int64 (common,), replacing earlier ones; they are on the disk when this returns.

        Args:
            identity: the alignment's, for predictions with the run's model; "" for none.
            terms: digest of the roster and the member's own rules under which the alignment is valid.
        """
        content = {"rows": rows.to(torch.int64), "keys": to_tensor(self.keys.digest)}
        if identity:
            content |= {"identity": to_tensor(identity.encode()), "terms": to_tensor(terms)}
        self.run_cache.keep(_NAME, number, content)

    def kept(self, terms: bytes) -> KeptAlignment | None:
        """The stored alignment, if it has an identity and is valid under these terms for the current keys."""
        if not self.number or not _is_content(content := self.run_cache.get(_NAME)):
            return None
        there = {name: to_bytes(content[name]) for name in _BYTES if name in content}
        if there.get("terms") != terms or there.get("keys") != self.keys.digest or not there.get("identity"):
            return None
        return KeptAlignment(there["identity"].decode(errors="replace"), content["rows"])

    @property
    def outdated(self) -> bool:
        """True if an alignment of other keys is stored here."""
        return bool(self.number) and to_bytes(_content(self.run_cache, self.member)["keys"]) != self.keys.digest

    def forget(self) -> None:
        self.run_cache.forget(_NAME)

    def rows(self, number: str) -> Tensor:
        """The stored row numbers, int64 (common,), of the current alignment's `number`.

        Raises:
            CheckpointError: another alignment is stored here, or none.
            DataError: the table's keys have changed since.
        """
        if self.number != number:
            raise CheckpointError(
                f"{self.member}: the run goes on with the alignment {number}, and here is {self.number or 'none'}",
                hint="resume every member from its own folder of this run, or begin a new run",
            )
        kept = _content(self.run_cache, self.member)
        if to_bytes(kept["keys"]) != self.keys.digest:
            raise DataError(
                f"{self.member}: the keys of its table, or their order, have changed since rows were aligned",
                hint="restore the table, or begin a new run",
                shared="the keys of its table, or their order, have changed since rows were aligned",
            )
        return kept["rows"]


def kept_rows(run_cache: RunCache, member: str) -> Tensor:
    """The row numbers of a finished run, int64 (common,). Raises CheckpointError if they are missing."""
    if not run_cache.number(_NAME):
        raise CheckpointError(f"{member}: there is no alignment of this run", hint="give a complete run folder")
    return _content(run_cache, member)["rows"]


def _content(run_cache: RunCache, member: str) -> Mapping[str, Tensor]:
    content = run_cache.get(_NAME)
    if not _is_content(content):
        raise CheckpointError(f"{member}: its alignment of this run was altered", hint="begin a new run")
    return content


def _is_content(content: Mapping[str, Tensor]) -> bool:
    if not {"rows", "keys"} <= content.keys() or content["rows"].dtype != torch.int64 or content["rows"].ndim != 1:
        return False
    return all(content[name].dtype == torch.uint8 and content[name].ndim == 1 for name in _BYTES if name in content)
