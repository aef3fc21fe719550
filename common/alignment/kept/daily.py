"""Daily limits on the identifiers that other members can test against a member's own, over all of its runs.

The count is in the member's own folder of alignments (common/alignment/kept/place.py) and not in a run's, so that a new
run does not start at zero. A partner is identified by its pinned fingerprint, which no server chooses.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from colonnade.common.alignment.kept.place import make_private
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault
from colonnade.common.run.durable import alone_in
from colonnade.common.run.json_text import parse_json, whole
from colonnade.common.run.kept_records import Witness

NAME = "tested.json"
"""Name of the count in a member's folder of alignments. `forget` keeps it."""

WITNESS = "tested.hash"
"""Name of the file beside it that says which count is the newest."""

_LOST = "restore it; without it, what others tested in the last 24 hours is not counted"
_HOUR = 3600
_HOURS = 24
_Hours = dict[int, tuple[int, int]]  # by hour since 1970: alignments and keys


class DailyLimits:
    """A member's alignments with each other member, and the others' keys in them, in the last 24 hours.

    Counts are kept by the hour; an hour counts until all of it is 24 hours ago. Hours in the future (a clock was set
    back) count too.

    Args:
        path: file of the count; None counts nothing.
        partners: the pinned fingerprint of every other member, by name.
        now: seconds since 1970.
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
    def of(cls, federation: FederationConfig, config: AlignmentsConfig, folder: Path, *, pinned: bool) -> DailyLimits:
        """Builds the limits as configured.

        Args:
            federation: the agreed section, with the whole roster.
            pinned: False where fingerprints identify no member: nothing is counted.
        """
        partners = {"server": federation.server, **federation.parties}
        return cls(folder / NAME if pinned else None, partners, config)

    def count(self, sizes: Mapping[str, int]) -> None:
        """Counts an alignment before it begins; the count is on the disk when this returns.

        `sizes` has the number of keys of each other member that takes part. If a limit is exceeded (ConfigError),
        nothing is written.
        """
        if self._path is None:
            return
        make_private(self._path.parent)
        with alone_in(self._path.parent):
            counts, since = self._read(self._path), math.floor(self._now() / _HOUR)
            for member, rows in sizes.items():
                hours = counts.setdefault(self._partners[member], {})
                self._judge(member, hours, rows)
                alignments, before = hours.get(since, (0, 0))
                hours[since] = (alignments + 1, before + rows)
            content = json.dumps({pin: hours for pin, hours in counts.items() if hours}).encode()
            try:
                self._witness(self._path).write(self._path, content, 0o600)
            except OSError as failed:
                raise EnvironmentFault(
                    f"{self._path} cannot be written: {failed.strerror}", hint="make room, or name another folder"
                ) from failed

    def tested(self, member: str) -> tuple[int, int]:
        """Numbers of alignments with a member, and of its keys in them."""
        return _sums({} if self._path is None else self._read(self._path).get(self._partners[member], {}))

    def _judge(self, member: str, hours: _Hours, rows: int) -> None:
        alignments, keys = _sums(hours)
        for rule, what, total in (("per_day", "alignments", alignments + 1), ("rows_per_day", "keys", keys + rows)):
            most: int | None = getattr(self._config, rule)
            if most is not None and total > most:
                said = f"alignments.{rule} = {most}: with this alignment {member} has tested {total} {what} in 24 hours"
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
            return counts
        except (OSError, ValueError, TypeError, AttributeError):
            raise CheckpointError(f"{path} is torn or was altered", hint=_LOST) from None

    @staticmethod
    def _witness(path: Path) -> Witness:
        return Witness(path.with_name(WITNESS))


def _time(hour: int) -> str:
    return datetime.fromtimestamp(hour * _HOUR, UTC).strftime("%d %B %H:%M UTC")


def _sums(hours: _Hours) -> tuple[int, int]:
    return sum(one for one, _ in hours.values()), sum(rows for _, rows in hours.values())
