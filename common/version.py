"""The version of Colonnade, and which versions work together in a federation."""

from __future__ import annotations

import re
from dataclasses import dataclass

VERSION = "0.3.0.dev0"

_LONGEST = 40  # characters of a version
_PARTS = r"(?:0|[1-9][0-9]{0,5})"  # digits of ASCII: other digits of Unicode are no version of ours
_FORM = re.compile(rf"({_PARTS})\.({_PARTS})\.({_PARTS})((?:(?:a|b|rc){_PARTS})?(?:\.post{_PARTS})?(?:\.dev{_PARTS})?)")


@dataclass(frozen=True)
class VersionNumber:
    """A version, `MAJOR.MINOR.PATCH`, with an optional suffix of a pre-release (`a1`, `rc1`, `.dev0`) or a `.post1`."""

    major: int
    minor: int
    patch: int
    suffix: str = ""

    @property
    def series(self) -> tuple[int, ...]:
        """The releases that work together: those of one MAJOR.MINOR before 1.0, of one MAJOR from 1.0 on."""
        return (self.major, self.minor) if self.major == 0 else (self.major,)


def read_version(text: str) -> VersionNumber | None:
    """Reads a version, which may come from a stranger; None if it has another form."""
    if len(text) > _LONGEST or (found := _FORM.fullmatch(text)) is None:
        return None
    return VersionNumber(int(found[1]), int(found[2]), int(found[3]), found[4])


def works_with(ours: str, theirs: str) -> bool:
    """True if both are versions of one series. The versions of the messages are compared separately."""
    mine, other = read_version(ours), read_version(theirs)
    return mine is not None and other is not None and mine.series == other.series


def series(version: str) -> str:
    """The series of a version, as `0.2.x`; the version itself if it has another form."""
    found = read_version(version)
    return version if found is None else ".".join(map(str, found.series)) + ".x"
