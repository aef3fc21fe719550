"""Messages, tensors and notices of every kind, for property tests of their transport."""

from __future__ import annotations

import math
import random
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message as ProtoMessage
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.aggregation.messages import RECOVERY_LIMITS
from colonnade.common.conversation.parcels import Begin, Failure, Farewell, Hello, Refusal, Rewind, Saved, Welcome
from colonnade.common.messaging.message import Message, TensorSpec, schema
from colonnade.common.messaging.raw import DTYPES
from colonnade.common.text import escaped
from colonnade.common.wire._generated import tensor_pb2  # noqa: F401  # registers what the others import

PROTO = Path(__file__).parents[2] / "proto"


def library(kind: type[Message]) -> type[ProtoMessage]:
    """The protobuf library's class for a message, from its .proto file."""
    pool, name = _pool(), f"colonnade.{generator()['stem'](kind)}.{kind.__name__}"
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@cache
def generator() -> dict[str, Any]:
    """Definitions of proto/generate.py."""
    return runpy.run_path(str(PROTO / "generate.py"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool, others = descriptor_pool.Default(), list(generator()["described"]())
    with TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        generator()["protoc"](f"--descriptor_set_out={out}", *others)
        for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
            pool.AddSerializedFile(file.SerializeToString())
    return pool


WORD = st.text(max_size=12)
PLAIN = WORD.map(escaped)  # as a notice's texts are when they have come off the wire
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)


@st.composite
def any_tensor(draw: st.DrawFn) -> Tensor:
    """Any dtype, 0 to 3 dimensions, empty ones too, any bits (NaN among them), any layout in memory."""
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    step, turned = draw(st.integers(1, 2)), draw(st.booleans())
    stored = [size * step for size in (reversed(shape) if turned else shape)]
    count = math.prod(stored)
    bits = random.Random(draw(st.integers(0, 2**32))).randbytes((count + 1) * dtype.itemsize)
    tensor = torch.frombuffer(bytearray(bits), dtype=dtype)[:count].reshape(stored)
    tensor = tensor.permute(tuple(reversed(range(len(shape))))) if turned else tensor
    return tensor[tuple(slice(None, None, step) for _ in shape)]


_SCALARS = {int: UINT32, float: st.floats(), str: WORD, bool: st.booleans()}


def any_message(kind: type[Message]) -> st.SearchStrategy[Message]:
    """A message of a kind, with tensors of any dtype and shape: contracts are checked elsewhere."""
    specs = schema(kind).items()
    values = {name: any_tensor() if isinstance(spec, TensorSpec) else _SCALARS[spec] for name, spec in specs}
    return st.builds(kind, **values)


def dimensions(rows: int, width: int, classes: int) -> dict[str, int]:
    """Sizes of dimensions by name: `width` for any other, but for those that are the same in every run."""
    return defaultdict(lambda: width, {**RECOVERY_LIMITS, "rows": rows, "width": width, "classes": classes})


def fitting_message(kind: type[Message], sizes: dict[str, int], **given: Any) -> Message:
    """A message of a kind as its contract wants it, with these dimensions; scalars at their longest, or as given."""
    longest = {int: 2**32 - 1, float: -0.1, str: "0123456789abcdef", bool: True}  # text: a hash, or a part's name

    def value(spec: TensorSpec | type) -> Any:
        if isinstance(spec, TensorSpec):
            return torch.rand([sizes[dim] for dim in spec.dims]).to(DTYPES[spec.dtype])
        return longest[spec]

    return kind(**{name: value(spec) for name, spec in schema(kind).items()} | given)


ROUNDS = st.lists(UINT32, max_size=3).map(tuple)

any_notice = st.one_of(
    st.builds(
        Hello,
        PLAIN,
        PLAIN,
        PLAIN,
        UINT32,
        st.dictionaries(PLAIN, PLAIN, max_size=3),
        UINT64,
        UINT64,
        PLAIN,
        ROUNDS,
        PLAIN,
    ),
    st.just(Welcome()),
    st.builds(Refusal, PLAIN, PLAIN),
    st.builds(Begin, UINT32, st.lists(PLAIN, max_size=4).map(tuple), PLAIN, UINT32, PLAIN),
    st.builds(Rewind, PLAIN),
    st.builds(Saved, UINT32, PLAIN),
    st.just(Farewell()),
    st.builds(Failure, PLAIN, PLAIN, PLAIN),
)
