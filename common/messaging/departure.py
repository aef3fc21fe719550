"""Release types of a party's message: every tensor field declares one, or the message is refused."""

from __future__ import annotations

import typing

from colonnade.common.messaging.fields import Tensor
from colonnade.common.messaging.message import Message, PartyMessage, ServerMessage, TensorSpec, schema


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
    for field, spec in schema(kind).items():
        if spec is float:
            return f"{name}.{field} is a float, which passes no privacy stage: send it as a tensor that is Released"
        if isinstance(spec, TensorSpec) and (field in typed) == bool(spec.public):
            said = "both says that it is public and has a type" if spec.public else "does not say how it leaves a party"
            return f"{name}.{field} {said}: declare it as Released, as MaskedTensor, or TensorSpec(..., public=REASON)"
    return ""


def typed_fields(kind: type[Message]) -> dict[str, type]:
    """The tensor fields whose declared type is not `Tensor`, with this type."""
    hints = typing.get_type_hints(kind)
    types = {name: hints[name] for name, spec in schema(kind).items() if isinstance(spec, TensorSpec)}
    return {name: type_ for name, type_ in types.items() if not _ordinary(type_)}


def _ordinary(type_: type) -> bool:
    """True for `Tensor` of fields.py and for torch's own classes."""
    return type_ is Tensor or type_.__module__.partition(".")[0] == "torch"
