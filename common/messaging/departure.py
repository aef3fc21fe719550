"""Release types of a party's message: every tensor field declares one, or the message is refused."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from torch import Tensor

from colonnade.common.messaging.message import Message, PartyMessage, ServerMessage, TensorSpec, schema
from colonnade.common.messaging.outgoing import Outgoing

_WAYS: dict[type, Mapping[str, type[Outgoing]]] = {}


def ways_out(kind: type[Message]) -> Mapping[str, type[Outgoing]]:
    """The tensor fields of a party's message with the type that the egress requires; all others are public.

    Raises:
        TypeError: the message is not a party's, or a field does not declare how it leaves.
    """
    if kind not in _WAYS:
        if not issubclass(kind, PartyMessage):
            raise TypeError(f"{kind.__name__} is no message of a party")
        if why := objection(kind):
            raise TypeError(why)
        _WAYS[kind] = _typed(kind)
    return _WAYS[kind]


def objection(kind: type[Message]) -> str:
    """Error and hint if a message cannot be part of a contract; "" if it can.

    A message is derived from `PartyMessage`, `ServerMessage` or both. A party's tensors are Released, MaskedTensor or
    public; a scalar of type float is none of these and would bypass the ledger.
    """
    name, party = kind.__name__, issubclass(kind, PartyMessage)
    if not party and not issubclass(kind, ServerMessage):
        return f"{name} does not say who sends it: derive it from PartyMessage or ServerMessage"
    typed = _typed(kind)
    if not party:
        odd = next(iter(typed), None)
        return "" if odd is None else f"{name}.{odd} leaves a party, and {name} is the server's: make it a PartyMessage"
    for field, spec in schema(kind).items():
        if spec is float:
            return f"{name}.{field} is a float, which passes no privacy stage: send it as a tensor that is Released"
        if isinstance(spec, TensorSpec) and (field in typed) == bool(spec.public):
            said = "both says that it is public and has a type" if spec.public else "does not say how it leaves a party"
            return f"{name}.{field} {said}: declare it as Released, as MaskedTensor, or TensorSpec(..., public=REASON)"
    return ""


def _typed(kind: type[Message]) -> dict[str, type[Outgoing]]:
    hints = typing.get_type_hints(kind)
    types = {name: hints[name] for name, spec in schema(kind).items() if isinstance(spec, TensorSpec)}
    return {name: type_ for name, type_ in types.items() if type_ is not Tensor}
