"""Messages between members: frozen dataclasses of tensors and scalars.

A protocol declares its messages in its contract (common/protocols/NAME.py):

    @message
    class Embedding(PartyMessage):
        h: Annotated[Released, TensorSpec("rows", "width")]

The base class gives the sender; the type of a party's tensor gives the way it leaves (common/messaging/outgoing.py).
Every dimension has a name. The contract's `limits` gives the maximum size for each name, which bounds every message
before it is read; the code that waits for a message gives the exact sizes: `collect(Embedding, t, quorum, rows=1024,
width=60)`.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform, get_args, get_origin

from colonnade.common.errors import ContractError
from colonnade.common.messaging.forms import AS_IS, Form, Packed

if TYPE_CHECKING:  # a contract is read without torch: fields.py
    import torch
    from torch import Tensor
from colonnade.common.messaging.fields import Tensor

_T = TypeVar("_T")

Dtype = Literal["float16", "float32", "float64", "int32", "int64", "uint8"]
"""Types of numbers in messages, as torch names them."""

_ITEM_BYTES: Mapping[str, int] = {"float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}

# Bytes of a message besides its tensors: names, shapes, scalars and strings.
SCALAR_ALLOWANCE = 512


@dataclass(frozen=True, init=False)
class TensorSpec:
    """Specification of a tensor field.

    Args:
        dims: one name per dimension.
        public: for an ordinary tensor in a party's message, the reason it may leave unchanged: it is not a function of
            private rows, or only of what was sent or received before.
    """

    dims: tuple[str, ...]
    dtype: Dtype
    public: str

    def __init__(self, *dims: str, dtype: Dtype | torch.dtype = "float32", public: str = "") -> None:
        name = dtype_name(dtype)
        if name not in _ITEM_BYTES:
            raise TypeError(f"a message holds no tensors of {name}: there are {', '.join(_ITEM_BYTES)}")
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "dtype", name)
        object.__setattr__(self, "public", public)

    def __str__(self) -> str:
        return f"{self.dtype} ({', '.join(self.dims)})"

    @property
    def floating(self) -> bool:
        """True if its numbers are no integers."""
        return self.dtype.startswith("float")

    @property
    def item_bytes(self) -> int:
        """Bytes of a number."""
        return _ITEM_BYTES[self.dtype]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(cls: type[_T]) -> type[_T]:
    """Declares a message: a frozen dataclass compared by identity (it holds tensors)."""
    return dataclass(frozen=True, eq=False)(cls)


@message
class Message:
    """One message of a protocol.

    Args:
        round: the round that it belongs to, from 1.
        packed: compressed fields in their wire form; the fields themselves hold the receiver's values. Set by the
            compression stage, never by protocol code.
    """

    round: int
    packed: Mapping[str, Packed] = field(default_factory=dict, kw_only=True, repr=False)


@message
class PartyMessage(Message):
    """A message that parties send. The egress accepts no other."""


@dataclass(frozen=True)
class Alike:
    """Declaration that the server sends some fields of a message alike to all parties that it sends it to.

    Args:
        fields: their names; parties compare them (docs/transcript.md).
        key: scalar fields that distinguish several such messages of one round.
    """

    fields: tuple[str, ...]
    key: tuple[str, ...] = ()


@message
class ServerMessage(Message):
    """A message that the server sends; `alike` are the fields that are the same for all parties, if any."""

    alike: ClassVar[Alike | None] = None


M = TypeVar("M", bound=Message)
Kinds = Mapping[str, type[Message]]


_SCHEMAS: dict[type, dict[str, TensorSpec | type]] = {}
_TENSOR_SPECS: dict[type, tuple[tuple[str, TensorSpec], ...]] = {}


def schema(kind: type[Message]) -> Mapping[str, TensorSpec | type]:
    """Every field of a kind in order: its `TensorSpec`, or the type of a scalar (int, float, str, bool)."""
    if kind not in _SCHEMAS:
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = [field for field in dataclass_fields(kind) if field.name != "packed"]
        _SCHEMAS[kind] = {field.name: _spec_of(kind, field.name, hints[field.name]) for field in fields}
    return _SCHEMAS[kind]


def _spec_of(kind: type[Message], name: str, hint: Any) -> TensorSpec | type:
    if get_origin(hint) is Annotated:
        return typing.cast(TensorSpec, get_args(hint)[1])
    if hint in (int, float, str, bool):
        return typing.cast(type, hint)
    raise TypeError(f"{kind.__name__}.{name}: a message holds tensors, int, float, str and bool, not {hint}")


def tensor_specs(kind: type[Message]) -> tuple[tuple[str, TensorSpec], ...]:
    """The tensor fields of a kind in order, with their specifications."""
    if kind not in _TENSOR_SPECS:
        specs = schema(kind).items()
        _TENSOR_SPECS[kind] = tuple((name, spec) for name, spec in specs if isinstance(spec, TensorSpec))
    return _TENSOR_SPECS[kind]


def tensors(message: Message) -> dict[str, Tensor]:
    """The tensor fields of a message by name."""
    return {name: getattr(message, name) for name, _ in tensor_specs(type(message))}


def snapshot(message: M) -> M:
    """A copy on the CPU, as if received over a wire: the sender may change its tensors afterwards."""
    copies: dict[str, Any] = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors(message).items()}
    return replace(message, **copies)


def payload_bytes(message: Message) -> int:
    """Bytes of the tensors alone in their wire form, as papers count communication."""
    return sum(message.packed.get(name, getattr(message, name)).nbytes for name, _ in tensor_specs(type(message)))


def memory(message: Message) -> int:
    """Approximate bytes of a message in memory."""
    sizes: list[int] = [getattr(message, name).nbytes for name, _ in tensor_specs(type(message))]
    return SCALAR_ALLOWANCE + sum(sizes)


def dtype_name(dtype: torch.dtype | str) -> str:
    """'float32' for torch.float32, or for itself."""
    return str(dtype).removeprefix("torch.")


def one_of(kinds: Kinds) -> str:
    """The declared message kinds, for an error: 'one of Embedding, Gradient'."""
    return f"one of {', '.join(sorted(kinds))}" if kinds else "no message at all"


def largest_bytes(kind: type[Message], limits: Mapping[str, int], form: Form = AS_IS) -> int:
    """Maximum bytes of a message of this kind.

    Args:
        limits: maximum size of every dimension, by name.
        form: form of float32 tensors; scales and positions can exceed the uncompressed size.
    """
    return SCALAR_ALLOWANCE + sum(_largest(spec, limits, form) for _, spec in tensor_specs(kind))


def _largest(spec: TensorSpec, limits: Mapping[str, int], form: Form) -> int:
    shape = tuple(limits[dim] for dim in spec.dims)
    as_is = math.prod(shape) * spec.item_bytes
    return max(as_is, form.size(shape)) if spec.dtype == "float32" else as_is


def check_kind(party: str, message: Message, kinds: Kinds, *, server: bool) -> None:
    """Checks that a kind is declared, and that its sender may send it.

    Args:
        server: True if the sender is the server.
    """
    kind, sent = type(message).__name__, ServerMessage if server else PartyMessage
    if kinds.get(kind) is not type(message):
        raise ContractError(party, kind, "", one_of(kinds), "an undeclared kind")
    if not isinstance(message, sent):
        theirs = {name: other for name, other in kinds.items() if issubclass(other, sent)}
        got = "a message of parties" if server else "a message of the server"
        raise ContractError(party, kind, "", one_of(theirs), got)


def check(party: str, message: Message, limits: Mapping[str, int]) -> None:
    """Checks that dtypes and ranks are as declared and sizes within limits; `party` is the sender, for errors."""
    for name, spec in tensor_specs(type(message)):
        kind, tensor = type(message).__name__, getattr(message, name)
        if (dtype := dtype_name(tensor.dtype)) != spec.dtype:
            raise ContractError(party, kind, name, str(spec), dtype)
        if tensor.dim() != len(spec.dims):
            raise ContractError(party, kind, name, str(spec), f"shape {tuple(tensor.shape)}")
        for position, (dim, size) in enumerate(zip(spec.dims, tensor.shape, strict=True)):
            if size > limits[dim]:
                expected = f"{dim} <= {limits[dim]} in dimension {position}"
                raise ContractError(party, kind, name, expected, f"shape {tuple(tensor.shape)}")


def check_finite(party: str, message: Message) -> None:
    """Checks that all numbers are finite."""
    for name, spec in schema(type(message)).items():
        value = getattr(message, name)
        if isinstance(spec, TensorSpec) and not all_finite(value):
            got = f"{int((~value.isfinite()).sum())} of {value.numel()} not finite"
            raise ContractError(party, type(message).__name__, name, "finite numbers", got)
        if spec is float and not math.isfinite(value):
            raise ContractError(party, type(message).__name__, name, "a finite number", str(value))


def check_exact(party: str, message: Message, dims: Mapping[str, int]) -> None:
    """Checks that the dimensions have these sizes; a name that is left out is free."""
    for name, spec in tensor_specs(type(message)):
        tensor = getattr(message, name)
        for position, (dim, size) in enumerate(zip(spec.dims, tensor.shape, strict=True)):
            if size != dims.get(dim, size):
                expected = f"{dim} = {dims[dim]} in dimension {position}"
                raise ContractError(party, type(message).__name__, name, expected, f"shape {tuple(tensor.shape)}")


def all_finite(tensor: Tensor) -> bool:
    """True if no entry is NaN or infinite.

    The sum is not finite if an entry is not, and costs a third of `isfinite().all()`; the slow check is needed only if
    the sum overflows although every entry is finite.
    """
    if not tensor.is_floating_point() or math.isfinite(tensor.sum().item()):
        return True
    return bool(tensor.isfinite().all())


def objection(kind: type[Message]) -> str:
    """Error and hint if a message cannot be part of a contract; "" if it can.

    A message is derived from `PartyMessage`, `ServerMessage` or both. A party's tensors are Released, MaskedTensor or
    public; a scalar of type float is none of these and would bypass the ledger.
    """
    name, party = kind.__name__, issubclass(kind, PartyMessage)
    if not party and not issubclass(kind, ServerMessage):
        return f"{name} does not say who sends it: derive it from PartyMessage or ServerMessage"
    typed = typed_fields(kind)
    if not party:
        odd = next(iter(typed), None)
        return "" if odd is None else f"{name}.{odd} leaves a party, and {name} is the server's: make it a PartyMessage"
    for key, spec in schema(kind).items():
        if spec is float:
            return f"{name}.{key} is a float, which passes no privacy stage: send it as a tensor that is Released"
        if isinstance(spec, TensorSpec) and (key in typed) == bool(spec.public):
            said = "both says that it is public and has a type" if spec.public else "does not say how it leaves a party"
            return f"{name}.{key} {said}: declare it as Released, as MaskedTensor, or TensorSpec(..., public=REASON)"
    return ""


def typed_fields(kind: type[Message]) -> dict[str, type]:
    """The tensor fields whose declared type is not `Tensor`, with this type."""
    hints = typing.get_type_hints(kind)
    types = {name: hints[name] for name, spec in schema(kind).items() if isinstance(spec, TensorSpec)}
    return {name: type_ for name, type_ in types.items() if not _ordinary(type_)}


def _ordinary(type_: type) -> bool:
    """True for `Tensor` of fields.py and for torch's own classes."""
    return type_ is Tensor or type_.__module__.partition(".")[0] == "torch"
