"""Address of the dashboard."""

from __future__ import annotations

import re
from collections.abc import Sequence

from colonnade.common.errors import InputError
from colonnade.common.observability.ports import split_address

_OPTION, _DEFAULT = "--dashboard", "127.0.0.1:0"
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")
_PORT = re.compile(r"[0-9]{1,5}")


def completed(words: Sequence[str]) -> list[str]:
    """Expands options without an address to the default that they stand for."""
    made: list[str] = []
    for at, word in enumerate(words):
        made.append(word)
        after = words[at + 1] if at + 1 < len(words) else ""
        if word == _OPTION and not (_PORT.fullmatch(after) or ":" in after):
            made.append(_DEFAULT)
    return made


def read_address(given: str) -> str:
    """Parses HOST:PORT; a bare port means loopback."""
    address = f"127.0.0.1:{given}" if _PORT.fullmatch(given) else given
    if not _ADDRESS.fullmatch(address) or split_address(address)[1] > 65535:
        hint = "a bare port is one of this machine alone; 0 is any that is free"
        raise InputError(f"{_OPTION} {given!r:.80}: expected HOST:PORT, or a port up to 65535", hint=hint)
    return re.sub("^localhost:", "127.0.0.1:", address)  # may be two addresses with different free ports
