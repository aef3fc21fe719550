"""The name of a federation, of which commands make folders."""

from __future__ import annotations

from colonnade.common.errors import ConfigError

_LONGEST = 100  # bytes in UTF-8: a folder's name is the id, a member's name of 63 and a time, and holds 255
_BETWEEN = " ._-"


def check_id(value: str) -> str:
    """Returns `federation.id` if it may name folders.

    Runs of versions before 0.3 may have others. Those are read and resumed where they are; no folder is made of them.

    Raises:
        ConfigError: it is not 1 to 100 bytes of letters, digits, spaces, `.`, `_` and `-` with a letter or a digit at
            both ends.
    """
    if not _names_folder(value):
        raise ConfigError(
            f"federation.id = {value[:60]!r}{'...' if len(value) > 60 else ''}: it names folders, and cannot",
            hint=f"use up to {_LONGEST} letters, digits, spaces, ., _ and -, with a letter or a digit at both ends",
        )
    return value


def _names_folder(value: str) -> bool:
    """True if a name is a single harmless part of a path."""
    inner = all(each.isalnum() or each in _BETWEEN for each in value)
    ends = value[:1].isalnum() and value[-1:].isalnum()
    return inner and ends and len(value.encode(errors="surrogatepass")) <= _LONGEST
