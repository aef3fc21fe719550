"""Receipts for boxes that parties send each other through the server: the sender learns which of them arrived.

A sender notes every box that it sends, a receiver every box that arrives and every exchange that brought none. The
receiver's next statement (client/transcript/statement.py) lists its exchanges with the senders whose boxes arrived, and
for every sender a chain of MACs over these boxes under the pair's key. The sender compares. The receiver skipped an
exchange that it does not list: it or its connection was late.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from colonnade.common.crypto.sealing import TranscriptError

_Exchange = tuple[int, str]  # round and stage
_Chain = tuple[int, bytes]  # number of boxes, and the MAC over all of them
_BEGIN: _Chain = (0, bytes(32))
_MASK = re.compile("[0-9a-f]{1,1024}")  # int() would also take a sign, blanks and underscores
_ENDS = 12, 16  # bytes of a box's nonce and of its tag, which stand for all of it

_SELECTIVE = (
    "the server is at fault, unless {receiver} states falsely that it did not get the box: compare the events "
    "of both parties (docs/transcript.md)"
)


class Receipts:
    """One party's receipts of a session; `names` are all parties in roster order. Without keys nothing is noted."""

    def __init__(self, name: str = "", names: tuple[str, ...] = ()) -> None:
        self._name, self._names = name, names
        self._keys: Mapping[str, bytes] = {}
        self._sent: dict[_Exchange, dict[str, bytes]] = {}
        self._received: dict[_Exchange, dict[str, bytes | None]] = {}  # not stated yet
        self._chains: dict[str, _Chain] = {}  # of boxes received, by sender
        self._expected: dict[str, _Chain] = {}  # of boxes sent, by receiver
        self._arrived: dict[_Exchange, dict[str, bool]] = {}

    def use(self, keys: Mapping[str, bytes]) -> None:
        """Begins with the pairwise key of every other party."""
        self._keys = keys

    def sent(self, to: str, round: int, stage: int | str, box: bytes | memoryview) -> None:
        """Notes a box that leaves for another party."""
        if self._keys:
            self._sent.setdefault((round, str(stage)), {})[to] = _digest(box)

    def received(self, sender: str, round: int, stage: int | str, box: bytes | memoryview | None) -> None:
        """Notes another party's box, or None if an exchange brought no usable one."""
        if self._keys:
            self._received.setdefault((round, str(stage)), {})[sender] = None if box is None else _digest(box)

    def state(self) -> dict[str, Any]:
        """Everything received since the last call, for a statement; empty if there is nothing."""
        exchanges, senders = [], set[str]()
        for (round, stage), boxes in self._received.items():
            mask = 0
            for sender, digest in boxes.items():
                if digest is not None:
                    mask |= 1 << self._names.index(sender)
                    before = self._chains.get(sender, _BEGIN)
                    self._chains[sender] = _next(before, self._keys[sender], (round, stage), digest)
                    senders.add(sender)
            exchanges.append([round, stage, f"{mask:x}"])
        self._received.clear()
        if not exchanges:
            return {}
        chains = {sender: [self._chains[sender][0], self._chains[sender][1].hex()] for sender in sorted(senders)}
        return {"exchanges": exchanges, "boxes": chains}

    def compare(self, other: str, stated: Mapping[str, Any]) -> list[TranscriptError]:
        """Compares another party's receipts with what we sent it. Returns errors for boxes that the server has passed
        on to some parties but not to this one.

        Raises TranscriptError if the party states a box that we did not send, or a different one; ValueError if
        malformed.
        """
        exchanges = [_exchange(entry) for entry in _list(stated.get("exchanges", []))]
        index, rounds, dropped = self._names.index(self._name), list[int](), list[TranscriptError]()
        for key, mask in exchanges:
            arrived, digest = bool(mask >> index & 1), self._sent.get(key, {}).get(other)
            if digest is None:
                if arrived and self._keys:
                    raise _false(other, key[0], f"a box of ours in round {key[0]} that we did not send")
                continue
            if arrived:
                rounds.append(key[0])
                before = self._expected.get(other, _BEGIN)
                self._expected[other] = _next(before, self._keys[other], key, digest)
            self._arrived.setdefault(key, {})[other] = arrived
            dropped += self._dropped(key, other)
        if rounds:
            count, mac = _chain(_dict(stated.get("boxes", {})).get(self._name))
            ours = self._expected[other]
            if count != ours[0] or not hmac.compare_digest(mac, ours[1]):
                raise _false(other, rounds[0], f"other boxes than we sent it in rounds {rounds[0]} to {rounds[-1]}")
        return dropped

    def forget(self, before: int) -> None:
        for book in (self._sent, self._arrived):
            for key in [key for key in book if key[0] < before]:
                del book[key]

    def _dropped(self, key: _Exchange, newest: str) -> list[TranscriptError]:
        """Receivers without our box of an exchange that brought it to others; an honest server leaves out none."""
        arrived = self._arrived[key]
        without = [name for name, got in arrived.items() if not got]
        if not without or len(without) == len(arrived):
            return []
        first_to_differ = arrived[newest] and sum(arrived.values()) == 1
        return [self._drop(key, name) for name in (without if first_to_differ else [newest]) if not arrived[name]]

    def _drop(self, key: _Exchange, receiver: str) -> TranscriptError:
        got = next(name for name, got in self._arrived[key].items() if got)
        text = (
            f"the server did not pass on to {receiver}, or altered, the box that {self._name} sent it in round "
            f"{key[0]} (stage {key[1]}), and passed on that to {got}"
        )
        hint = _SELECTIVE.format(receiver=receiver)
        return TranscriptError(text, other=receiver, part="box", round=key[0], hint=hint)


def _false(other: str, round: int, said: str) -> TranscriptError:
    text = f"{other} states that it received {said}"
    return TranscriptError(text, other=other, part="box", round=round)


def _digest(box: bytes | memoryview) -> bytes:
    """Nonce, tag and length: the tag authenticates the rest under a key that the server does not have."""
    head, tail = _ENDS
    return bytes(box[:head]) + bytes(box[-tail:]) + len(box).to_bytes(8)


def _next(before: _Chain, key: bytes, exchange: _Exchange, digest: bytes) -> _Chain:
    content = before[1] + json.dumps(exchange).encode() + digest
    return before[0] + 1, hmac.digest(key, content, sha256)


def _exchange(entry: Any) -> tuple[_Exchange, int]:
    round, stage, mask = _list(entry)
    texts = type(stage) is str and type(mask) is str and len(stage) <= 40
    if type(round) is not int or not texts or not _MASK.fullmatch(mask):
        raise ValueError("an exchange is a round, a stage and a mask")
    return (round, stage), int(mask, 16)


def _chain(entry: Any) -> _Chain:
    count, mac = _list(entry)
    if type(count) is not int or type(mac) is not str:
        raise ValueError("a chain is a number and a MAC")
    return count, bytes.fromhex(mac)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    return value
