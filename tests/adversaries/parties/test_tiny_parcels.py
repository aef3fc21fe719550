"""Frames of a megabyte that hold parcels of two bytes, or empty Hellos: refused before they become anything larger.

Bounds: messages (party).
"""

from __future__ import annotations

import tracemalloc

import pytest
import torch

from colonnade.common.conversation.parcels import Farewell, Parcel
from colonnade.common.protocols.split import CONTRACT, Embedding
from colonnade.common.wire import codec as codec_module
from colonnade.common.wire.codec import Codec, WireError
from colonnade.common.wire.frame import MOST_PARCELS, pack, unpack

CODEC = Codec(CONTRACT.kinds)
MEGABYTE = 1 << 20
FLOODS = {
    "of another session": b"\x08\x05" + b"\x12\x00" * (MEGABYTE // 2),
    "hellos": b"\x12\x02\x0a\x00" * (MEGABYTE // 4),
    "letters without a kind": b"\x12\x02\x3a\x00" * (MEGABYTE // 4),
    "fields of a parcel": b"\x12\x80\x80\x40" + b"\x08\x00" * (MEGABYTE // 2),
    "fields of a letter": b"\x12\x84\x80\x40\x3a\x80\x80\x40" + b"\x0a\x00" * (MEGABYTE // 2),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_frame_costs_no_more_than_its_bytes(flood: bytes) -> None:
    came: list[Parcel] = []
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            came.extend(unpack(flood, 0, CODEC))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not came and peak < MEGABYTE // 4


def test_as_many_parcels_as_a_sender_lays_together_are_read() -> None:
    frame = pack(Farewell(), 0, CODEC)
    assert len(list(unpack(frame * MOST_PARCELS, 0, CODEC))) == MOST_PARCELS
    with pytest.raises(WireError, match=f"at most {2 * MOST_PARCELS} fields"):
        list(unpack(frame * (MOST_PARCELS + 1), 0, CODEC))


def test_an_unexpected_message_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object) -> None:
        raise AssertionError("its tensor was decoded")

    frame = pack(Embedding(9, torch.ones(100, 4)), 0, CODEC)
    monkeypatch.setattr(codec_module, "read_tensor", decoded)
    asked: list[tuple[str, int]] = []

    def expects(kind: str, round: int) -> bool:
        asked.append((kind, round))
        return False

    assert list(unpack(frame, 0, CODEC, expects)) == [] and asked == [("Embedding", 9)]
