"""Fewer bits over the wire: exactly as many, read back exactly, and none but those that were agreed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from common.compress import Compressor
from common.conversation import SERVER
from common.errors import ConfigError, ContractError
from common.message import check, payload_bytes
from common.numerics.quantise import Packed, packed_size
from common.protocols.vimadmm import CONTRACT, Embedding, Update
from common.wire._generated import tensor_pb2, vimadmm_pb2
from common.wire.codec import Codec
from common.wire.fields import WireError
from tests.federation import config, federate, parameters

VIMADMM = {"name": "vimadmm", "embedding": 60, "tau": 2}


def codec(incoming: int = 32) -> Codec:
    return Codec("vimadmm", CONTRACT.kinds, incoming)


def body(message: Embedding | Update) -> bytes:
    return b"".join(codec().encode(message))


def compressed(bits: int) -> Embedding:
    return Compressor(bits, 0, "ada")(Embedding(3, torch.randn(50, 7)))


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 16])
def test_it_comes_as_it_went(bits: int) -> None:
    sent = compressed(bits)
    came = codec(bits).decode("Embedding", memoryview(body(sent)))
    assert isinstance(came, Embedding) and torch.equal(came.h, sent.h)
    assert payload_bytes(came) == payload_bytes(sent) == -(-350 * bits // 8) + (0 if bits == 16 else 8)
    assert len(body(sent)) <= payload_bytes(sent) + 40


def test_protobuf_reads_the_same() -> None:
    read = vimadmm_pb2.Embedding.FromString(body(compressed(4))).h
    assert (read.bits, read.dtype, list(read.shape), len(read.data)) == (4, tensor_pb2.Tensor.FLOAT32, [50, 7], 175)
    assert read.low < 0 < read.high
    half = vimadmm_pb2.Embedding.FromString(body(compressed(16))).h
    assert (half.bits, half.dtype, half.low) == (0, tensor_pb2.Tensor.FLOAT16, 0.0)


@pytest.mark.parametrize(("bits", "agreed"), [(8, 32), (32, 8), (8, 4), (16, 8), (8, 16), (32, 16)], ids=str)
def test_other_bits_than_agreed_are_refused(bits: int, agreed: int) -> None:
    with pytest.raises(WireError, match=rf"Embedding.h: expected {agreed} bits an entry, got {bits} bits"):
        codec(agreed).decode("Embedding", memoryview(body(compressed(bits))))


def test_halves_where_floats_were_agreed_are_a_wrong_dtype() -> None:
    came = codec().decode("Embedding", memoryview(body(compressed(16))))
    with pytest.raises(ContractError, match=r"ada sent Embedding.h: expected float32 \(rows, width\), got float16"):
        check("ada", came, {"rows": 50, "width": 7})


def wrong(**changes) -> bytes:
    proto = vimadmm_pb2.Embedding.FromString(body(compressed(4)))
    for name, value in changes.items():
        setattr(proto.h, name, value)
    return proto.SerializeToString()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bits": 3}, "4 bits an entry, got 3 bits"),
        ({"bits": 0}, "4 bits an entry, got 32 bits"),
        ({"bits": 2**31}, "4 bits an entry, got 2147483648 bits"),
        ({"data": b"x" * 174}, "175 bytes of 4 bits"),
        ({"data": b"x" * 176}, "175 bytes of 4 bits"),
        ({"low": float("nan")}, "a scale from a finite low"),
        ({"high": float("inf")}, "a scale from a finite low"),
        ({"low": 9.0, "high": 1.0}, "a scale from a finite low"),
        ({"high": 1e300}, "a scale from a finite low"),
        ({"dtype": tensor_pb2.Tensor.INT32}, "4 bits an entry, got 4 bits of int32"),
    ],
)
def test_a_scale_that_is_none_is_refused(changes: dict, said: str) -> None:
    with pytest.raises(WireError, match=said):
        codec(4).decode("Embedding", memoryview(wrong(**changes)))


@pytest.mark.parametrize("changes", [{"bits": 32}, {"bits": 16}, {"bits": 32, "dtype": tensor_pb2.Tensor.INT32}])
@pytest.mark.parametrize("agreed", [32, 16, 8])
def test_bits_that_are_none_are_refused(changes: dict, agreed: int) -> None:
    with pytest.raises(WireError, match=rf"{agreed} bits an entry"):
        codec(agreed).decode("Embedding", memoryview(wrong(**changes)))


def test_a_small_frame_does_not_become_a_large_tensor() -> None:
    """One bit an entry is 32 times as much in memory: refused before it is unpacked."""
    strict = Codec("vimadmm", CONTRACT.kinds, 1, {"rows": 50, "width": 7, "classes": 3, "parameters": 9})
    assert strict.decode("Embedding", memoryview(body(compressed(1)))) is not None
    for shape in ((51, 7), (50, 8), (350,), (1 << 12, 1 << 12)):
        packed = Packed(1, 0.0, 1.0, shape, np.zeros(packed_size(shape, 1), np.uint8))
        large = replace(compressed(1), packed={"h": packed})
        with pytest.raises(WireError, match=r"with rows <= 50, width <= 7, got shape"):
            strict.decode("Embedding", memoryview(body(large)))


def test_a_repeated_round_repeats_every_bit() -> None:
    tensor = torch.randn(50, 7)
    one, two = (Compressor(4, 0, "ada")(Embedding(3, tensor)).h for _ in range(2))
    assert torch.equal(one, two)
    for other in (Compressor(4, 1, "ada")(Embedding(3, tensor)), Compressor(4, 0, "bob")(Embedding(3, tensor)),
                  Compressor(4, 0, "ada")(Embedding(4, tensor))):  # fmt: skip
        assert not torch.equal(one, other.h)


def test_a_run_sends_as_many_bytes_as_the_bits_say() -> None:
    sets = ("federation.rounds=2", "federation.epochs=0", "federation.compress={up: 4, down: 16}")
    outcome = federate(config(VIMADMM, *sets))
    rows = [len(outcome.server.schedule.batch(t)) for t in (1, 2)]
    up = [m for sender, _, m in outcome.messages if sender == "party1" and isinstance(m, Embedding)]
    down = [m for sender, to, m in outcome.messages if sender == SERVER and to == "party1"]
    assert [payload_bytes(m) for m in up] == [n * 60 // 2 + 8 for n in rows]
    assert [payload_bytes(m) for m in down] == [2 * (2 * n * 10 + 600) for n in rows]
    assert len(up[0].h.unique()) <= 16


def test_few_bits_learn_nearly_as_much_and_repeat() -> None:
    sets = ("federation.rounds=30", "federation.epochs=0", "federation.protocol.tau=20")
    small = (*sets, "federation.compress={up: 4, down: 8}")
    whole, one, two = (federate(config(VIMADMM, *how)) for how in (sets, small, small))
    assert one.server.metrics["test_accuracy"] > whole.server.metrics["test_accuracy"] - 0.03
    assert sum(one.payload) < sum(whole.payload) / 5
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])


@pytest.mark.parametrize("bits", [0, 9, 12, 33, -1])
def test_only_so_many_bits(bits: int) -> None:
    with pytest.raises(ConfigError, match=rf"federation.compress.up = {bits}: expected one of 1, 2, 3"):
        config(VIMADMM, f"federation.compress.up={bits}")
