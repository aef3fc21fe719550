"""Parcels that a false member sends out of place: well-formed, and of the state of the line that they come on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from colonnade.common.conversation.parcels import (
    Begin,
    Failure,
    Open,
    Parcel,
    Preparing,
    Refusal,
    Rewind,
    Save,
    Saved,
    Spent,
)
from colonnade.common.messaging.message import Message, TensorSpec, schema
from colonnade.common.messaging.raw import DTYPES
from colonnade.common.wire.frame import pack
from tests.support.relay import Fault, Passed, Piece, Relay, pieces

NEVER_SENT: Mapping[str, Parcel] = {
    "Rewind": Rewind("again"),
    "Refusal": Refusal("no"),
    "Failure": Failure("party2", "it has failed"),
    "Spent": Spent(1.0),
    "Preparing": Preparing(),
}
"""Notices that no undisturbed run has."""


class Forger:
    """Makes parcels of any kind from those of an undisturbed run.

    Args:
        record: every parcel of such a run.
        other: a party, whose parcel is sent in the place of another's of the same kind.
    """

    def __init__(self, record: list[Passed], other: str) -> None:
        self._models = {passed.piece.kind: passed.piece for passed in reversed(record)}
        self._others = {passed.piece.kind: passed.piece for passed in record if passed.party == other}
        self._other = other

    def __call__(self, relay: Relay, fault: Fault, due: Piece) -> Piece:
        """A parcel of the kind `fault.other`, of the round and the session in which `due` is expected.

        It is the newest one of this kind that has passed on the line, if there is one, else that of the undisturbed
        run; in the place of a parcel of the same kind, that of the other party.
        """
        line = [passed.piece for passed in relay.passed[:-1] if passed.party == fault.party]
        parcel = self._model(relay, fault)
        session = max((_read(relay, piece).session for piece in line if piece.kind == "Begin"), default=0)
        opened = max((_read(relay, piece).round for piece in line if piece.kind == "Open"), default=0)
        parcel = _fitted(parcel, _round_of(_read(relay, due)) or opened, opened, session)
        (found,) = pieces(pack(parcel, due.session, relay.codec))
        return found

    def _model(self, relay: Relay, fault: Fault) -> Parcel:
        kind, party, models = fault.other, fault.party, self._models
        if fault.act == "instead" and kind == fault.kind:
            party, models = self._other, self._others
        before = [one.piece for one in relay.passed[:-1] if (one.party, one.piece.kind) == (party, kind)]
        model = before[-1] if before else models.get(kind)
        if model is not None:
            return _read(relay, model)
        return NEVER_SENT[kind] if kind in NEVER_SENT else _blank(relay.kinds[kind])


def _blank(kind: type[Message]) -> Message:
    """A message that no undisturbed run of the setting has: one zero in every tensor."""
    fields = schema(kind).items()
    return kind(**{
        name: torch.zeros([1] * len(spec.dims), dtype=DTYPES[spec.dtype]) if isinstance(spec, TensorSpec) else spec()
        for name, spec in fields
    })  # fmt: skip


def _read(relay: Relay, piece: Piece) -> Any:
    (parcel,) = relay.read(piece)
    return parcel


def _round_of(parcel: Parcel) -> int:
    return parcel.round if isinstance(parcel, Message) else 0


def _fitted(parcel: Parcel, round: int, newest: int, session: int) -> Parcel:
    """The same for another place: the kind that an honest member would send there, if it sent this kind at all."""
    match parcel:
        case Message():
            return replace(parcel, round=round)
        case Open():
            return Open(newest + 1)
        case Save() | Saved():
            return replace(parcel, round=newest)
        case Begin():
            return replace(parcel, session=session + 1)
        case _:
            return parcel
