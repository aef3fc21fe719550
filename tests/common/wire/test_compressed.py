"""Fewer bits over the wire: the exact number, read back exactly, and only agreed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from colonnade.common.conversation.compression import Compressor
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.draws import AgreedDraws
from colonnade.common.errors import ContractError
from colonnade.common.messaging.forms import AS_IS, Coded, Form, Largest, Packed, Signs
from colonnade.common.messaging.message import check, largest_bytes, payload_bytes
from colonnade.common.protocols.vimadmm import CONTRACT, Embedding, Update
from colonnade.common.wire._generated import tensor_pb2
from colonnade.common.wire.codec import Codec, WireError
from tests.support.federation import config, federate, parameters
from tests.support.messages import library

VIMADMM = {"name": "vimadmm", "embedding": 60, "tau": 2}


def codec(incoming: Form = AS_IS) -> Codec:
    return Codec(CONTRACT.kinds, incoming)


def body(message: Embedding | Update) -> bytes:
    return b"".join(codec().encode(message))


def compressed(form: Form) -> Embedding:
    return Compressor(form, AgreedDraws(0, (), "server"), "ada")(Embedding(3, torch.randn(50, 7)))


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 16])
def test_it_is_received_unchanged(bits: int) -> None:
    sent = compressed(Coded(bits))
    came = codec(Coded(bits)).decode("Embedding", memoryview(body(sent)))
    assert isinstance(came, Embedding) and torch.equal(came.h, sent.h)
    assert payload_bytes(came) == payload_bytes(sent) == -(-350 * bits // 8) + (0 if bits == 16 else 8)
    assert len(body(sent)) <= payload_bytes(sent) + 40


def test_protobuf_reads_the_same() -> None:
    read = library(Embedding).FromString(body(compressed(Coded(4)))).h
    assert (read.bits, read.dtype, list(read.shape), len(read.data)) == (4, tensor_pb2.Tensor.FLOAT32, [50, 7], 175)
    assert read.low < 0 < read.high
    half = library(Embedding).FromString(body(compressed(Coded(16)))).h
    assert (half.bits, half.dtype, half.low) == (0, tensor_pb2.Tensor.FLOAT16, 0.0)


@pytest.mark.parametrize(("bits", "agreed"), [(8, 32), (32, 8), (8, 4), (16, 8), (8, 16), (32, 16)], ids=str)
def test_other_bits_than_agreed_are_refused(bits: int, agreed: int) -> None:
    with pytest.raises(WireError, match=rf"Embedding.h: expected {agreed} bits an entry, got {bits} bits"):
        codec(Coded(agreed)).decode("Embedding", memoryview(body(compressed(Coded(bits)))))


def test_half_precision_instead_of_agreed_floats_is_a_wrong_dtype() -> None:
    came = codec().decode("Embedding", memoryview(body(compressed(Coded(16)))))
    with pytest.raises(ContractError, match=r"ada sent Embedding.h: expected float32 \(rows, width\), got float16"):
        check("ada", came, {"rows": 50, "width": 7})


def wrong(agreed: Form, **changes) -> bytes:
    proto = library(Embedding).FromString(body(compressed(agreed)))
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
        codec(Coded(4)).decode("Embedding", memoryview(wrong(Coded(4), **changes)))


@pytest.mark.parametrize("changes", [{"bits": 32}, {"bits": 16}, {"bits": 32, "dtype": tensor_pb2.Tensor.INT32}])
@pytest.mark.parametrize("agreed", [32, 16, 8])
def test_bits_that_are_none_are_refused(changes: dict, agreed: int) -> None:
    with pytest.raises(WireError, match=rf"{agreed} bits an entry"):
        codec(Coded(agreed)).decode("Embedding", memoryview(wrong(Coded(4), **changes)))


FORMS: tuple[Form, ...] = (
    Coded(4, by_column=True),
    Coded(4, symmetric=True),
    Coded(3, nearest=True),
    Largest(0.1),
    Signs(),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_received_unchanged(form: Form) -> None:
    sent = compressed(form)
    came = codec(form).decode("Embedding", memoryview(body(sent)))
    assert isinstance(came, Embedding) and torch.equal(came.h, sent.h)
    assert payload_bytes(came) == payload_bytes(sent) == form.size((50, 7))
    assert len(body(sent)) <= payload_bytes(sent) + 40


def test_protobuf_reads_every_form() -> None:
    by_column = library(Embedding).FromString(body(compressed(FORMS[0]))).h
    ends = [np.frombuffer(part, "<f4") for part in (by_column.lows, by_column.highs)]
    assert (by_column.form, by_column.bits, len(by_column.data)) == (tensor_pb2.Tensor.COLUMNS, 4, 175)
    assert len(ends[0]) == len(ends[1]) == 7 and (ends[0] < ends[1]).all()
    largest = library(Embedding).FromString(body(compressed(Largest(0.1)))).h
    assert (largest.form, len(largest.places), len(largest.data)) == (tensor_pb2.Tensor.LARGEST, 2 * 35, 4 * 35)
    signs = library(Embedding).FromString(body(compressed(Signs()))).h
    assert (signs.form, signs.bits, len(signs.data), signs.low) == (tensor_pb2.Tensor.SIGNS, 1, 44, 0.0)
    assert 0 < signs.mean < 2


EVERY: tuple[Form, ...] = (AS_IS, Coded(16), Coded(1), Coded(4), FORMS[0], Largest(0.1), Signs())


@pytest.mark.parametrize("sent", EVERY, ids=str)
@pytest.mark.parametrize("agreed", EVERY, ids=str)
def test_no_form_passes_for_another(sent: Form, agreed: Form) -> None:
    if sent == agreed or (sent, agreed) == (Coded(16), AS_IS):  # that is a wrong dtype, refused as such
        return
    with pytest.raises(WireError, match=r"Embedding.h: expected .* got "):
        codec(agreed).decode("Embedding", memoryview(body(compressed(sent))))


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def words(*values: int) -> bytes:
    return np.array(values, "<u2").tobytes()


@pytest.mark.parametrize(
    ("form", "changes", "said"),
    [
        (FORMS[0], {"form": 0}, "4 bits an entry by column, got 4 bits of float32"),
        (FORMS[0], {"form": 9}, "4 bits an entry by column, got form 9 of float32"),
        (FORMS[0], {"bits": 3}, "4 bits an entry by column, got 3 bits of float32 by column"),
        (FORMS[0], {"lows": floats(*[0] * 6)}, "28 bytes of lows, got 24"),
        (FORMS[0], {"highs": floats(*[0] * 8)}, "28 bytes of highs, got 32"),
        (FORMS[0], {"highs": b""}, "28 bytes of highs, got 0"),
        (FORMS[0], {"highs": floats(9, 9, -9, 9, 9, 9, 9)}, "no smaller, got .* to -9 in column 2"),
        (FORMS[0], {"lows": floats(-9, -9, -9, -9, -9, float("nan"), -9)}, "nan to .* in column 5"),
        (FORMS[0], {"highs": floats(9, 9, 9, 9, 9, 9, float("inf"))}, "to inf in column 6"),
        (FORMS[0], {"low": 1.0}, "no low with 4 bits of float32 by column, got 1"),
        (FORMS[0], {"places": b"12"}, "0 bytes of places, got 2"),
        (Coded(4), {"mean": 1.0}, "no mean with 4 bits of float32, got 1"),
        (Coded(4), {"lows": floats(1)}, "0 bytes of lows, got 4"),
        (Largest(0.1), {"places": words(*range(34))}, "70 bytes of places, got 68"),
        (Largest(0.1), {"places": words(*range(36))}, "70 bytes of places, got 72"),
        (Largest(0.1), {"data": floats(*range(36))}, "140 bytes of the largest of float32"),
        (Largest(0.1), {"places": words(*range(34), 33)}, "places that ascend"),
        (Largest(0.1), {"places": words(1, 0, *range(2, 35))}, "places that ascend"),
        (Largest(0.1), {"places": words(*range(34), 350)}, "places below 350, got 350"),
        (Largest(0.1), {"data": floats(*[1] * 34, float("nan"))}, "finite values, got 1 of 35 not finite"),
        (Largest(0.1), {"bits": 4}, "the largest 0.1 of the entries, got the largest of float32 with bits = 4"),
        (Largest(0.1), {"dtype": tensor_pb2.Tensor.FLOAT16}, "got the largest of float16"),
        (Signs(), {"mean": -1.0}, "a mean of 0 or more that is finite, got -1"),
        (Signs(), {"mean": float("nan")}, "a mean of 0 or more that is finite, got nan"),
        (Signs(), {"mean": 1e300}, "a mean of 0 or more that is finite"),
        (Signs(), {"data": b"x" * 43}, "44 bytes of signs of float32"),
        (Signs(), {"bits": 0}, "the entries' signs, got signs of float32"),
        (Signs(), {"high": 1.0}, "no high with signs of float32"),
    ],
)
def test_a_form_that_is_none_is_refused(form: Form, changes: dict, said: str) -> None:
    with pytest.raises(WireError, match=said):
        codec(form).decode("Embedding", memoryview(wrong(form, **changes)))


@pytest.mark.parametrize("form", EVERY, ids=str)
def test_no_message_is_larger_than_the_largest(form: Form) -> None:
    """A scale a column, or places beside values, can take more than the entries as they are."""
    for rows, width in ((1, 7), (50, 7), (300, 300)):
        sent = Compressor(form, AgreedDraws(0, (), "server"), "ada")(Embedding(3, torch.randn(rows, width)))
        assert len(body(sent)) <= largest_bytes(Embedding, {"rows": rows, "width": width}, form)
    assert form.size((1, 7)) <= 28 or largest_bytes(Embedding, {"rows": 1, "width": 7}) < largest_bytes(
        Embedding, {"rows": 1, "width": 7}, form
    )


def test_a_small_frame_does_not_become_a_large_tensor() -> None:
    """One bit an entry is 32 times as much in memory: refused before it is unpacked."""
    strict = Codec(CONTRACT.kinds, Coded(1), {"rows": 50, "width": 7, "classes": 3, "parameters": 9})
    assert strict.decode("Embedding", memoryview(body(compressed(Coded(1))))) is not None
    for shape in ((51, 7), (50, 8), (350,), (1 << 12, 1 << 12)):
        data, ends = np.zeros(-(-math.prod(shape) // 8), np.uint8), np.array([[0], [1]], np.float32)
        packed = Packed(Coded(1), shape, data, ends, np.empty(0, np.uint8))
        large = replace(compressed(Coded(1)), packed={"h": packed})
        with pytest.raises(WireError, match=r"with rows <= 50, width <= 7, got shape"):
            strict.decode("Embedding", memoryview(body(large)))


def test_a_repeated_round_repeats_every_bit() -> None:
    tensor = torch.randn(50, 7)

    def sent(seed: int, to: str, round: int) -> torch.Tensor:
        return Compressor(Coded(4), AgreedDraws(seed, (), "server"), to)(Embedding(round, tensor)).h

    one = sent(0, "ada", 3)
    assert torch.equal(one, sent(0, "ada", 3))
    for other in (sent(1, "ada", 3), sent(0, "bob", 3), sent(0, "ada", 4)):
        assert not torch.equal(one, other)


def test_a_run_sends_as_many_bytes_as_the_bits_say() -> None:
    sets = ("federation.rounds=2", "federation.epochs=0", "federation.compress={up: 4, down: 16}")
    outcome = federate(config(VIMADMM, *sets))
    rows = [len(outcome.server.schedule.batch(t)) for t in (1, 2)]
    up = [m for sender, _, m in outcome.messages if sender == "party1" and isinstance(m, Embedding)]
    down = [m for sender, to, m in outcome.messages if sender == SERVER and to == "party1"]
    assert [payload_bytes(m) for m in up] == [n * 60 // 2 + 8 for n in rows]
    assert [payload_bytes(m) for m in down] == [2 * (2 * n * 10 + 600) for n in rows]
    assert len(up[0].h.unique()) <= 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("up", "down"),
    [
        ("{bits: 4, scale: column, rounding: nearest}", "{bits: 4, scale: column}"),
        ("{top: 0.2}", "{top: 0.2}"),
        ("32", "{sign: true}"),  # outputs of a ReLU are almost never negative
    ],
)
def test_every_form_learns_and_repeats(up: str, down: str) -> None:
    sets = ("federation.rounds=40", "federation.epochs=0", f"federation.compress={{up: {up}, down: {down}}}")
    one, two = (federate(config({"name": "split", "embedding": 16}, *sets)) for _ in range(2))
    assert one.server.metrics["test_accuracy"] > 0.6
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])


@pytest.mark.slow
def test_few_bits_learn_nearly_as_much_and_repeat() -> None:
    sets = ("federation.rounds=12", "federation.epochs=0", "federation.protocol.tau=5")
    small = (*sets, "federation.compress={up: 4, down: 8}")
    whole, one, two = (federate(config(VIMADMM, *how)) for how in (sets, small, small))
    assert one.server.metrics["test_accuracy"] > whole.server.metrics["test_accuracy"] - 0.03
    assert sum(one.payload) < sum(whole.payload) / 5
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])


def test_exchanges_of_one_round_are_rounded_independently() -> None:
    """With asynchronous parties a round has many exchanges: with equal roundings, their errors would add up."""
    compress = Compressor(Coded(2), AgreedDraws(0, (), "server"), "ada")
    x = torch.linspace(-1, 1, 50).view(10, 5)
    came = torch.stack([compress(Embedding(3, x + 1e-6 * turn)).h for turn in range(400)])
    step = 2 / 3
    assert ((came.mean(0) - x).abs() < 5 * step / 2 / 20 + 1e-3).all()
    assert came.std(0)[1:-1].min() > 0.05
