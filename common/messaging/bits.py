"""Codes of 1 to 8 bits, packed into bytes without gaps, the highest bit first.

Eight codes, a byte each, are read as integers and joined by shifts. Where a byte holds 2, 4 or 8 codes, one
multiplication suffices: it sums the codes, each shifted to its place in the highest byte.
"""

from __future__ import annotations

import numpy as np

# Codes are packed in groups of eight, which fill whole bytes at every width.
GROUP = 8

_LANES = tuple(np.dtype(name) for name in ("<u2", "<u4", "<u8"))  # of 2, 4 and 8 codes
_EVEN = {4: _LANES[0], 2: _LANES[1], 1: _LANES[2]}  # a lane of as many codes as a byte holds


def join(codes: np.ndarray, bits: int) -> np.ndarray:
    """Bytes, uint8 (n bits / 8,), of codes below 2^bits, uint8 (n,), where n is a multiple of `GROUP`."""
    if bits == 8:
        return codes
    if bits not in _EVEN:
        return _join_odd(codes, bits)
    lane = _EVEN[bits]
    high = 8 * lane.itemsize - 8
    # Code i lies at bit 8 i and is wanted at bit high + 8 - bits (i + 1); no two terms share a bit.
    gather = sum(1 << (high + 8 - bits * (place + 1) - 8 * place) for place in range(lane.itemsize))
    return np.asarray(codes.view(lane) * gather >> high).astype(np.uint8)


def split(data: np.ndarray, bits: int) -> np.ndarray:
    """The codes, uint8 (n,), that `join` packed into these bytes; an incomplete group at the end counts as whole."""
    if bits == 8:
        return data
    if bits not in _EVEN:
        return _split_odd(data, bits)
    lane = _EVEN[bits]
    spread = sum(1 << (8 + bits) * place for place in range(lane.itemsize))
    mask = sum(2**bits - 1 << 8 * place for place in range(lane.itemsize))
    return np.asarray((data.astype(lane) * spread >> 8 - bits) & mask).view(np.uint8)


def _join_odd(codes: np.ndarray, bits: int) -> np.ndarray:
    words = codes
    for stage, lane in enumerate(_LANES):  # merges neighbours, three times
        pairs, half = words.view(lane), 8 << stage
        words = (pairs & (1 << half) - 1) << (bits << stage) | pairs >> half
    groups = words.view(np.uint8).reshape(-1, GROUP)
    data = np.empty((len(groups), bits), np.uint8)
    for place in range(bits):
        data[:, place] = groups[:, bits - 1 - place]
    return data.reshape(-1)


def _split_odd(data: np.ndarray, bits: int) -> np.ndarray:
    rows = np.zeros((-(-len(data) // bits), bits), np.uint8)
    rows.reshape(-1)[: len(data)] = data
    groups = np.zeros((len(rows), GROUP), np.uint8)
    for place in range(bits):
        groups[:, bits - 1 - place] = rows[:, place]
    words: np.ndarray = groups.reshape(-1)
    for stage, lane in reversed(list(enumerate(_LANES))):
        pairs, low = words.view(lane), bits << stage
        words = pairs >> low | (pairs & (1 << low) - 1) << (8 << stage)
    return words.view(np.uint8)
