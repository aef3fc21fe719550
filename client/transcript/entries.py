"""Hashes of everything that the server should tell all parties alike, round by round."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from colonnade.common.conversation.control import Close, Item, Save
from colonnade.common.messaging.message import ServerMessage, TensorSpec, schema

_LENGTH = 16  # bytes of a hash in a statement


class ToldEntry(NamedTuple):
    """One item.

    Args:
        name: its kind, with the fields that distinguish several of a round.
        digest: SHA-256 of its content.
    """

    name: str
    round: int
    digest: bytes


def entry_of(item: Item, round: int, *, exact: bool) -> ToldEntry | None:
    """The entry of an item; None if the server need not tell it to all parties alike.

    Args:
        round: the newest open one, for items without a round.
        exact: False if float32 tensors are compressed separately for each party, and so left out.
    """
    match item:
        case Save():
            return ToldEntry("Save", item.round, _hash([item.keep, item.best, item.model]))
        case Close():
            return ToldEntry("Close", round, _hash([]))
        case ServerMessage() if (alike := item.alike) is not None:
            if (known := _known.get(item)) is None or known[0] != exact:
                parts = [type(item).__name__, *(f"{name}={getattr(item, name)}" for name in alike.key)]
                made = ToldEntry(" ".join(parts), item.round, _digest(item, alike.fields, exact=exact))
                known = _known[item] = exact, made
            return known[1]
        case _:
            return None


_known: WeakKeyDictionary[ServerMessage, tuple[bool, ToldEntry]] = WeakKeyDictionary()  # each is asked for twice


def salted(key: bytes, entry: ToldEntry) -> str:
    """An entry's hash as it is stated, hex: an HMAC over name, round and digest."""
    content = json.dumps([entry.name, entry.round]).encode() + entry.digest
    return hmac.digest(key, content, sha256)[:_LENGTH].hex()


def salt_key(run: str, session: int, secret: bytes) -> bytes:
    """Key of the hashes of a session.

    Args:
        session: 0 where no keys are agreed on, since a party that returns is then told a new number.
        secret: shared by the parties and unknown to the server; empty where no keys are agreed on.
    """
    return sha256(json.dumps(["colonnade transcript", run, session, secret.hex()]).encode()).digest()


def _digest(message: ServerMessage, fields: tuple[str, ...], *, exact: bool) -> bytes:
    specs, found = schema(type(message)), sha256()
    for name in fields:
        value, spec = getattr(message, name), specs[name]
        if isinstance(spec, TensorSpec):
            if exact or spec.dtype != "float32":
                _take_tensor(found, name, value)
        else:
            found.update(json.dumps([name, value]).encode())
    return found.digest()


def _take_tensor(found: sha256, name: str, tensor: Tensor) -> None:  # type: ignore[valid-type]
    found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())  # type: ignore[attr-defined]
    if tensor.numel():
        flat = tensor.detach().cpu().contiguous().view(-1)
        found.update(flat.view(torch.uint8).numpy())  # type: ignore[attr-defined]


def _hash(values: list[int]) -> bytes:
    return sha256(json.dumps(values).encode()).digest()
