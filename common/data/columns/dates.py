"""Dates and times as numbers: days since the beginning of 1970, in UTC where a zone is given."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.config.data.columns import CLOCK, DATE_PARTS

_DAY = 86_400e6  # microseconds
_INSTANT = pa.timestamp("us")


def dates(text: pa.Array, form: str = "") -> pa.Array:
    """Instants; null where a cell is not a date of this form.

    Args:
        text: cells without white space around them, null where one is missing.
        form: for example `%d.%m.%Y %H:%M`; "" for ISO 8601: `2024-03-01`, with `T` or a space before a time.
    """
    return _iso(text if not form else _rewritten(text, form))


def days(instants: pa.Array) -> np.ndarray:
    """Days since 1970, (n,) float64, NaN where a date is missing; instants of any resolution."""
    counted = pc.cast(pc.cast(instants, _INSTANT, safe=False), pa.int64())
    found: np.ndarray = pc.divide(pc.cast(counted, pa.float64(), safe=False), _DAY).to_numpy(zero_copy_only=False)
    return found


def _rewritten(text: pa.Array, form: str) -> pa.Array:
    """ISO 8601 text; null where a cell has another form.

    pyarrow's strptime is not used: it reads February 31 as March 2.
    """
    pattern = re.escape(form)
    for code, group in {**DATE_PARTS, **CLOCK}.items():
        pattern = pattern.replace(code, group)
    parts = pc.extract_regex(text, f"^{pattern}$")
    names = {field.name for field in parts.type}

    def part(name: str) -> pa.Array | pa.Scalar:
        if name not in names:
            return pa.scalar("00")
        return pc.utf8_lpad(pc.if_else(pc.is_valid(parts), pc.struct_field(parts, name), None), 2, "0")

    day = pc.binary_join_element_wise(*map(part, "Ymd"), "-")
    return pc.binary_join_element_wise(day, pc.binary_join_element_wise(*map(part, "HMS"), ":"), " ")


def _iso(text: pa.Array) -> pa.Array:
    text = pc.replace_substring_regex(text, r"([.]\d{6})\d+", r"\1")  # nanoseconds
    zoned = pc.match_substring_regex(text, r"\d\d:.*(Z|[+-]\d\d(:?\d\d)?)$")
    nothing = pa.scalar(None, pa.string())
    local = _parsed(pc.if_else(zoned, nothing, text), _INSTANT)
    elsewhere = _parsed(pc.if_else(zoned, text, nothing), pa.timestamp("us", "UTC"))
    return pc.coalesce(local, pc.cast(elsewhere, _INSTANT))


def _parsed(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parsed cells, null where one cannot be read: all at once if every cell can be read, else one by one."""
    try:
        return pc.cast(text, kind)
    except pa.ArrowInvalid:
        return pa.array([_one(cell, kind) for cell in text], kind)


def _one(cell: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return cell.cast(kind)
    except pa.ArrowInvalid:
        return None
