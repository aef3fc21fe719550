"""What the server has told a party at the beginning of a session, part by part, and errors about differences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from colonnade.common.errors import PeerError

Parts = Mapping[str, str | int]
"""Part of the beginning of a session -> its value, or its hash, in the order of `PARTS`."""

PARTS: Mapping[str, str] = {
    "section": "the agreed section",
    "roster": "the fingerprints of the roster",
    "run": "run",
    "session": "session",
    "round": "round",
    "backed_off": "number of back-offs",
    "parties": "the parties that are present",
    "offers": "the offered keys",
}
"""Parts of the beginning of a session in their fixed order, in words."""

_HASHED = ("section", "roster", "parties", "offers")
_LONGEST = 64  # characters of a value in an error

DISHONEST = (
    "the server has told the parties different things, or {other} states what it was not told: compare the "
    "`finding` events of both parties with {other}'s operator, over another channel (docs/transcript.md)"
)


class TranscriptError(PeerError):
    """Parties were told different things, or something between them is missing or altered.

    Args:
        other: the party whose statement differs from our record.
        round: 0 for the beginning of a session.
        ours, theirs: values or hashes.
    """

    telling = None

    def __init__(
        self, message: str, *, other: str, part: str, round: int = 0, ours: str = "", theirs: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint or DISHONEST.format(other=other))
        self.other, self.part, self.round, self.ours, self.theirs = other, part, round, ours, theirs

    def fields(self) -> dict[str, Any]:
        return {
            "other": self.other, "part": self.part, "round": self.round, "ours": self.ours, "theirs": self.theirs,
            "reason": str(self),
        }  # fmt: skip


def hash_of_values(values: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(values.items())).encode()).hexdigest()


def refuse_other_parts(other: str, theirs: Mapping[str, Any], ours: Parts, among: tuple[str, ...] = ()) -> None:
    """Compares what two parties were told at the beginning of a session; `among` are the parts, all of ours if empty.

    Raises:
        TranscriptError: a part differs; names the first one and both values.
    """
    for part in among or tuple(ours):
        said, own = theirs.get(part), ours[part]
        if type(said) is not type(own) or said != own:
            raise _difference(other, part, str(said)[:_LONGEST], str(own)[:_LONGEST])


def _difference(other: str, part: str, theirs: str, ours: str) -> TranscriptError:
    name = PARTS[part]
    if part in _HASHED:
        text = f"{other} was told otherwise of {name} than we were: hash {theirs}, ours {ours}"
    else:
        text = f"{other} was told {name} {theirs}, we were told {name} {ours}"
    return TranscriptError(text, other=other, part=part, ours=ours, theirs=theirs)
