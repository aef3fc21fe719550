"""Egress of a party: every message passes here, is entered in the ledger, and only then leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Carrier
from colonnade.common.conversation.parcels import Item
from colonnade.common.conversation.stream import Traffic
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging import fields
from colonnade.common.messaging.forms import Packed
from colonnade.common.messaging.message import Message, PartyMessage, objection, typed_fields
from colonnade.common.messaging.outgoing import MaskedTensor, Outgoing, Released
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import Release

_ALLOWED = {Released: "a tensor from ctx.release", MaskedTensor: "a tensor from ctx.admit_masked"}
_CLASSES: Mapping[type, type[Outgoing]] = {fields.Released: Released, fields.MaskedTensor: MaskedTensor}
_WAYS: dict[type, Mapping[str, type[Outgoing]]] = {}


class _Pass(NamedTuple):
    """Record of a tensor that may leave once.

    Attributes:
        tensor: the party side's own tensor.
        content: its values at release: the egress's own copy, which nothing else refers to.
        version: `tensor`'s version at release; torch increments it with every in-place change.
        packed: the content as it travels, if packed.
    """

    tensor: Outgoing
    content: Tensor
    version: int
    mechanism: str
    epsilon: float | None = None
    packed: Packed | None = None


class Egress:
    """A carrier that passes only released values, as they were when they were released.

    `left` counts what leaves by kind, in the same bytes as the ledger.
    """

    def __init__(
        self, carry: Carrier, to: str, release: Release, ledger: Ledger, left: dict[str, list[int]] | None = None
    ) -> None:
        self._carry, self._to, self._release, self._ledger = carry, to, release, ledger
        self._left = {} if left is None else left
        self._waiting: dict[int, _Pass] = {}
        self._copies = Copies()

    def release(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        """Passes a function of private rows through the privacy stage and keeps a copy of the result.

        Only the returned tensor itself may then be sent, and once. `evaluation` marks validation or test rows; `rows`
        gives the row numbers of a matrix that has a line for each. Raises TrainingDiverged if a number is not finite,
        and no noise is agreed.
        """
        released = self._release(private, evaluation=evaluation, rows=rows)
        self._admit(released, released.mechanism, released.epsilon, released.packed)
        return released

    def admit_masked(self, value: MaskedTensor, of: Released | None = None) -> MaskedTensor:
        """Admits values that reveal nothing by themselves: sealed for others, masked, shares of a code.

        Args:
            value: as the code that masks it returned it.
            of: the result of `release` that `value` masks, if any: it was paid for, and is not sent itself.

        Raises InputError if the values are not masked; a summand of the receiver's sum was not released; `of` did not
        come from `release`, or was masked, sent or changed before.
        """
        if not isinstance(value, MaskedTensor):
            raise InputError(
                f"a {type(value).__name__} is not masked",
                hint="pass on what common.crypto or the code has returned, as it is",
            )
        if of is None and value.summed:
            raise InputError("what goes into a sum was not released", hint="name what ctx.release returned")
        mechanism, epsilon = value.mechanism, None
        if of is not None:
            inner = self._redeem(of)
            if inner is None or not isinstance(of, Released) or _changed(inner):
                raise InputError("what is masked was not released", hint="mask what ctx.release returned, once")
            mechanism, epsilon = f"{inner.mechanism}, {mechanism}", inner.epsilon
            self._copies.give_back(inner.content)
        self._admit(value, mechanism, epsilon)
        return value

    def __call__(self, item: Item) -> None:
        """Sends an item; a message is charged first.

        Raises ContractError if no party sends this message, its kind does not say how a tensor leaves, or a tensor that
        must be released or masked was not, or was changed afterwards.
        """
        if not isinstance(item, Message):
            self._carry(item)
        else:
            passes = {name: self._checked(item, name, way) for name, way in _ways_out(item).items()}
            charges = list(passes.values())
            mechanism = " + ".join(sorted({charge.mechanism for charge in charges}))
            epsilon = charges[-1].epsilon if charges else None
            item = _as_released(item, passes)
            self._ledger.charge(item, self._to, mechanism, epsilon)
            Traffic.count(self._left, item)
            self._carry(item)  # `carry` encodes or copies before it returns
            for charge in charges:
                self._copies.give_back(charge.content)

    def _admit(self, tensor: Outgoing, mechanism: str, epsilon: float | None, packed: Packed | None = None) -> None:
        content = self._copies.take(tensor)
        self._waiting[id(tensor)] = _Pass(tensor, content, tensor._version, mechanism, epsilon, packed)

    def _checked(self, message: Message, name: str, way: type[Outgoing]) -> _Pass:
        found = self._redeem(getattr(message, name))
        if found is None or not isinstance(found.tensor, way):
            raise ContractError("this side", type(message).__name__, name, _ALLOWED[way], "another")
        if isinstance(found.tensor, Released) and found.tensor.steps is not None:
            expected = "a masked tensor: this one has only a share of the noise of a sum"
            raise ContractError("this side", type(message).__name__, name, expected, "it in the clear")
        if _changed(found):
            expected = f"the tensor as it was {way.__name__.lower()}"
            raise ContractError("this side", type(message).__name__, name, expected, "one that was changed afterwards")
        return found

    def _redeem(self, value: Tensor) -> _Pass | None:
        found = self._waiting.pop(id(value), None)
        return found if found is not None and found.tensor is value else None


def ways_out(kind: type[Message]) -> Mapping[str, type[Outgoing]]:
    """The tensor fields of a party's message with the type that the egress requires; all others are public.

    Raises TypeError if the message is not a party's, or a field does not declare how it leaves.
    """
    if kind not in _WAYS:
        if not issubclass(kind, PartyMessage):
            raise TypeError(f"{kind.__name__} is no message of a party")
        if why := objection(kind):
            raise TypeError(why)
        _WAYS[kind] = {name: _CLASSES.get(way, way) for name, way in typed_fields(kind).items()}
    return _WAYS[kind]


def _ways_out(message: Message) -> Mapping[str, type[Outgoing]]:
    try:
        return ways_out(type(message))
    except TypeError as why:
        raise ContractError("this side", type(message).__name__, "", "a message of a party", str(why)) from None


def _changed(known: _Pass) -> bool:
    """True if torch counted an in-place change. It misses some changes: therefore the copy is what leaves."""
    return known.tensor._version != known.version


def _as_released(message: Message, passes: dict[str, _Pass]) -> Message:
    if not passes:
        return message
    own: dict[str, object] = {name: known.content for name, known in passes.items()}
    packed = {name: known.packed for name, known in passes.items() if known.packed is not None}
    made = object.__new__(type(message))  # ten times as fast as `dataclasses.replace`
    made.__dict__.update(message.__dict__, packed=packed or message.packed, **own)
    return made


_MOST = 16  # shapes to keep memory for

_Key = tuple[torch.Size, torch.dtype, torch.device]


class Copies:
    def __init__(self) -> None:
        self._spare: dict[_Key, Tensor] = {}

    def take(self, tensor: Tensor) -> Tensor:
        """Returns a copy of a tensor that nothing else refers to."""
        plain = tensor.detach()
        spare = self._spare.pop(_key(plain), None)
        return plain.clone() if spare is None else spare.copy_(plain)

    def give_back(self, copy: Tensor) -> None:
        if len(self._spare) < _MOST:
            self._spare[_key(copy)] = copy


def _key(tensor: Tensor) -> _Key:
    return tensor.shape, tensor.dtype, tensor.device
