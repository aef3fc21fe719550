"""Daily limits on the identifiers that other members can test against a member's own, over all of its runs.

The count is in the member's own folder of alignments (common/alignment/place.py) and not in a run's, so that a new
run does not start at zero. A partner is identified by its pinned fingerprint, which no server chooses.

The server counts what each party has sent to it. A party hears of other parties' lists from the server alone, which
forwards them and may lie, so it counts all lists as the server's: a server can neither test more under other members'
names, nor use up what the party allows the members of other servers' federations.

Over all alignments of its run's folder a party also counts how many of other members' keys were compared with its own.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.common.alignment.place import make_private
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError, ConfigError, disk_faults
from colonnade.common.run.files import alone_in, write_kept
from colonnade.common.run.json_text import Witness, parse_json, sealed, unsealed, whole

NAME = "tested.json"
"""Name of the count in a member's folder of alignments. `forget` keeps it."""

WITNESS = "tested.hash"  # name of the file beside it that says which count is the newest

_LOST = "restore it; without it, what others tested in the last 24 hours is not counted"
_HOUR = 3600
_HOURS = 24
_Hours = dict[int, tuple[int, int]]  # by hour since 1970: alignments and keys
_EARLIER = ""  # in place of a fingerprint: keys counted by their owner, which any server may have announced


class DailyLimits:
    """A member's alignments with each partner, and the partner's keys in them, in the last 24 hours.

    Counts are kept by the hour; an hour counts until all of it is 24 hours ago. Hours in the future (a clock was set
    back) count too.

    Args:
        path: file of the count; None counts nothing.
        partners: pinned fingerprints by name: of all parties for the server, of the server alone for a party.
    """

    def __init__(
        self,
        path: Path | None = None,
        partners: Mapping[str, str] | None = None,
        config: AlignmentsConfig | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._partners, self._now = path, dict(partners or {}), now
        self._config = config or AlignmentsConfig()

    @classmethod
    def of(
        cls, federation: FederationConfig, config: AlignmentsConfig, folder: Path, member: str, *, pinned: bool
    ) -> DailyLimits:
        """Builds the limits of a member as configured.

        Args:
            pinned: False where fingerprints identify no member: nothing is counted.
        """
        partners = federation.parties if member == SERVER else {SERVER: federation.server}
        return cls(folder / NAME if pinned else None, partners, config)

    def count(self, sizes: Mapping[str, int]) -> None:
        """Counts an alignment before it begins; the count is on the disk when this returns.

        `sizes` has the number of keys of each partner that takes part; a party's are those of all other members. If a
        limit is exceeded (ConfigError), nothing is written.
        """
        if self._path is None:
            return
        make_private(self._path.parent)
        with alone_in(self._path.parent):
            counts, since = self._read(self._path), math.floor(self._now() / _HOUR)
            for member, rows in sizes.items():
                hours = counts.setdefault(self._partners[member], {})
                self._judge(member, _together(hours, counts.get(_EARLIER, {})), rows)
                alignments, before = hours.get(since, (0, 0))
                hours[since] = (alignments + 1, before + rows)
            content = json.dumps({pin: hours for pin, hours in counts.items() if hours or pin == _EARLIER}).encode()
            with disk_faults(f"{self._path} cannot be written", "make room, or name another folder"):
                self._witness(self._path).write(self._path, content, 0o600)

    def expect(self, sizes: Mapping[str, int]) -> None:
        """Refuses an alignment that a limit excludes at any time (ConfigError), and counts nothing."""
        for member, rows in sizes.items():
            self._judge(member, {}, rows)

    def tested(self, member: str) -> tuple[int, int]:
        """Numbers of alignments with a partner, and of its keys in them."""
        counts = {} if self._path is None else self._read(self._path)
        return _sums(_together(counts.get(self._partners[member], {}), counts.get(_EARLIER, {})))

    def _judge(self, member: str, hours: _Hours, rows: int) -> None:
        alignments, keys = _sums(hours)
        for rule, what, total in (("per_day", "alignments", alignments + 1), ("rows_per_day", "keys", keys + rows)):
            most: int | None = getattr(self._config, rule)
            if most is not None and total > most:
                did = f"{member} has tested {total} {what}"
                if member == SERVER:  # which speaks for all parties
                    who = f"the server with the certificate {self._partners[member][:16]}…"
                    did = f"{who} has announced {total} {what if rule == 'per_day' else 'keys of other members'}"
                said = f"alignments.{rule} = {most}: with this alignment {did} in 24 hours"
                wait = (
                    f"wait until {_time(min(hours) + _HOURS + 1)}, when the oldest no longer counts; or "
                    if hours
                    else ""
                )
                raise ConfigError(said, hint=f"{wait}raise the limit, if you trust {member}", shared=said)

    def _read(self, path: Path) -> dict[str, _Hours]:
        try:
            if (kept := self._witness(path).read(path, _LOST)) is None:
                return {}
            counts: dict[str, _Hours] = {}
            oldest = math.floor(self._now() / _HOUR) - _HOURS
            for pin, hours in parse_json(kept).items():
                read = {whole(int(hour)): (whole(one), whole(rows)) for hour, (one, rows) in hours.items()}
                counts[pin] = {hour: one for hour, one in read.items() if hour >= oldest}
            if SERVER in self._partners and _EARLIER not in counts:
                return _by_server(counts)
            return counts
        except (OSError, ValueError, TypeError, AttributeError):
            raise CheckpointError(f"{path} is torn or was altered", hint=_LOST) from None

    @staticmethod
    def _witness(path: Path) -> Witness:
        return Witness(path.with_name(WITNESS))


def _by_server(counts: dict[str, _Hours]) -> dict[str, _Hours]:
    """An earlier count of a party, by the owners of lists: all their keys count for every server."""
    alignments = {pin: {hour: (one, 0) for hour, (one, _) in hours.items()} for pin, hours in counts.items()}
    keys = [{hour: (0, rows) for hour, (_, rows) in hours.items()} for hours in counts.values()]
    return {**alignments, _EARLIER: _together(*keys)}


def _together(*counts: _Hours) -> _Hours:
    every = {hour for hours in counts for hour in hours}
    return {hour: _sums({at: hours[hour] for at, hours in enumerate(counts) if hour in hours}) for hour in every}


def _time(hour: int) -> str:
    return datetime.fromtimestamp(hour * _HOUR, UTC).strftime("%d %B %H:%M UTC")


def _sums(hours: _Hours) -> tuple[int, int]:
    return sum(one for one, _ in hours.values()), sum(rows for _, rows in hours.values())


FOREIGN_KEYS = "foreign-keys.json"


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
