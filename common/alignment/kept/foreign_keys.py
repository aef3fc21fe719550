"""Number of other members' keys compared with a party's own, over all alignments of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colonnade.common.config.policy import PolicyConfig
from colonnade.common.errors import CheckpointError
from colonnade.common.run.durable import write_kept
from colonnade.common.run.json_text import whole
from colonnade.common.run.kept_records import sealed, unsealed

NAME = "foreign-keys.json"


class ForeignKeys:
    """The lists received from each other member, by hash; an exact repeat is not counted again.

    Args:
        party: the party whose keys they are compared with.
        most: limit on the keys of any other member, over all its lists; None for no limit.
        rule: the policy's key that sets the limit.
        path: file of the count; None keeps it in memory.
    """

    def __init__(
        self, party: str, most: int | None = None, rule: str = "max_other_rows", path: Path | None = None
    ) -> None:
        self.most, self._party, self._rule, self._path = most, party, rule, path
        self._begun, self._settled, self._lists = self._read()

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def counted(self) -> int:
        """Number of lists counted, which only grows."""
        return sum(map(len, self._lists.values()))

    def begin(self) -> int:
        """Begins an alignment. Returns the number of attempts since the last completed one."""
        before = self._begun
        self._keep(before + 1, self._settled, self._lists)
        return before

    def settle(self) -> None:
        """Marks the alignment as completed by all members."""
        if self._begun or not self._settled:
            self._keep(0, True, self._lists)

    def expect(self, owner: str, rows: int) -> None:
        """Refuses an announced list that cannot be a repeat and exceeds the limit."""
        if rows not in self._lists.get(owner, {}).values():
            self._judge(owner, rows)

    def count(self, owner: str, rows: int, digest: str) -> None:
        """Counts a list, of the owner that the server reports, before any of it is passed on; on the disk when this
        returns.

        A list that is new (by the digest of all its bytes) and exceeds the limit is refused.
        """
        known = self._lists.get(owner, {})
        if digest in known:
            return
        self._judge(owner, rows)
        self._keep(self._begun, self._settled, {**self._lists, owner: {**known, digest: rows}})

    def _judge(self, owner: str, rows: int) -> None:
        before = self._lists.get(owner, {})
        total = rows + sum(before.values())
        if self.most is not None and total > self.most:
            lists = f", in {len(before) + 1} lists that differ" if before else ""
            PolicyConfig.object(self._party, self._rule, self.most, f"{total} keys at {owner}{lists}")

    def _read(self) -> tuple[int, bool, dict[str, dict[str, int]]]:
        if self._path is None or not self._path.exists():
            return 0, False, {}
        try:
            kept: dict[str, Any] = unsealed(self._path.read_bytes())
            lists = {str(owner): {str(d): whole(n) for d, n in own.items()} for owner, own in kept["lists"].items()}
            return whole(kept["begun"]), bool(kept["settled"]), lists
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise CheckpointError(
                f"{self._path} is torn or was altered", hint="restore it, or choose another --out for another run"
            ) from None

    def _keep(self, begun: int, settled: bool, lists: dict[str, dict[str, int]]) -> None:
        if self._path is not None:
            content = sealed({"begun": begun, "settled": settled, "lists": lists})
            write_kept(self._path, content, 0o600, in_new=True)
        self._begun, self._settled, self._lists = begun, settled, lists
