from __future__ import annotations

import math

_SMALLEST = -9  # powers of ten; smaller numbers keep the exponent


def plain(value: float, digits: int = 4) -> str:
    """A number with given digits and without an exponent: 57770.4 -> '57,770', 0.10821 -> '0.1082', 54.3 -> '54.3'."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    power = math.floor(math.log10(abs(value)))
    if power < _SMALLEST:
        return f"{value:.{digits}g}"
    places = digits - 1 - power
    text = f"{round(value, places):,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
