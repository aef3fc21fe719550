"""JSON of files that may be torn or altered. Light: every command imports this."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

_MOST = (1 << 63) - 1


def parse_json(text: bytes | str) -> Any:
    """`json.loads`, with ValueError also for a text that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(value: object, most: int = _MOST) -> int:
    """Returns a value if it is a whole number from 0 to `most`, else raises ValueError, also for a truth value."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number from 0 to {most}")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """True for a number that a float holds: not for NaN, an infinity or an integer of hundreds of digits."""
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False
