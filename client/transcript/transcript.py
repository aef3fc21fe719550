"""A party's transcript of a session: statements to all other parties, and the comparison with theirs.

It hashes everything that the server should tell all parties alike, round by round. Statements travel beside the rounds,
and nothing waits for them before the end of the session (docs/transcript.md).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Callable, Collection
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from colonnade.client.transcript.receipts import Receipts
from colonnade.client.transcript.statement import OtherParties, OwnRecord, WindowStatement, rows, signed
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Close, Item, Open, Relayed, Save, Statement
from colonnade.common.conversation.relay import LARGEST
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import PairKeys, SealError, Session, TranscriptError, refuse_other_parts
from colonnade.common.crypto.signatures import ForgedError, Signer, Verifier
from colonnade.common.errors import ContractError
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.messaging.message import Message, ServerMessage, TensorSpec, schema
from colonnade.common.observability.telemetry import Telemetry

_SLACK = 10  # rounds beyond a window that a statement may take
_MOST_ENTRIES = 400  # per statement
_KEPT = 20  # windows kept for parties that are behind, or 1000 rounds
_LEAST_KEPT = 1000
_PATIENCE = 2.0  # seconds at the end for parties that may be absent
_LOOK = 0.5  # seconds between two checks of the connection
_SALT = "transcript salt"
_RING = "KeyRing"  # from this message on the parties have keys
_WITHHELD = "the server withholds it, or {other} has not sent it: ask {other}'s operator (docs/transcript.md)"


def always_in_step(federation: FederationConfig, contract: Contract[Any]) -> bool:
    """True if every party answers in every round, so that all are told the same."""
    waits = federation.quorum.need == "all" and federation.absence == "rollback" and federation.participation == 1
    return contract.in_step and waits and not federation.protocol.asynchronous


class PartyTranscript:
    """One session's transcript.

    Args:
        identity: signs; None on loopback without TLS, where nothing is signed.
        there: the participants; the whole roster by default.
        report: called with every finding: (error, True if it ends the run).
    """

    def __init__(
        self,
        name: str,
        federation: FederationConfig,
        session: Session,
        identity: Identity | None = None,
        *,
        there: Collection[str] = (),
        in_step: bool,
        send: Callable[[Statement], None],
        report: Callable[[TranscriptError, bool], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._name, self._federation, self._session = name, federation, session
        self._signer, self._secure = Signer(identity), identity is not None
        self._every, self._in_step = federation.transcript.every, in_step
        self._send, self._report, self._fail = send, report, fail
        self._exact = form_of(federation.compress.down) == AS_IS
        names = [other for other in there or federation.names if other != name] if self._every else []
        self._groups = [OtherParties(names, session.round)] if names else []
        self._others = {other: group for group in self._groups for other in group.names}
        self._told: dict[str, Any] = {**session.told(), "offers": ""}
        self._verifiers: dict[tuple[str, bytes], Verifier] = {}
        self._own, self._noted = OwnRecord(last=session.round), dict[tuple[str, int], ToldEntry]()
        self._newest, self._number, self._due, self._warned = session.round, 0, False, set[str]()
        self._keys: PairKeys | None = None
        self._salt: bytes | None = b""  # None until it arrives, where keys are agreed on
        self._salt_box = ""
        self._found: Exception | None = None
        self._changed = asyncio.Event()
        self.receipts = Receipts(name, federation.names)

    def begin(self) -> None:
        self._state()

    def inward(self, deliver: Callable[[Item], None]) -> Callable[[Item], None]:
        """Wraps the delivery of items: statements are taken out, others noted and passed on."""
        if not self._others:
            return lambda item: None if isinstance(item, Relayed) else deliver(item)

        def receive(item: Item) -> None:
            try:
                self._guard(lambda: self._hear(item) if isinstance(item, Relayed) else self._note(item))
            except ContractError as wrong:
                self._fail(wrong)
            else:
                if not isinstance(item, Relayed):
                    deliver(item)

        return receive

    def keyed(self, keys: PairKeys) -> None:
        """Takes the keys of the session: receipts begin, and the first party draws the salt."""
        if not self._others:
            return
        self._keys, self._told["offers"] = keys, keys.offers
        self.receipts.use(keys.receipts)
        if self._name == self._federation.names[0]:
            self._salt = os.urandom(32)
            boxes = {other: keys.seals.seal(other, self._salt, _SALT).hex() for other in self._others}
            self._state(salt=boxes)
        elif self._salt_box:
            self._guard(self._open_salt)
        self._flush_if_due()

    async def conclude(self, gone: Callable[[], bool]) -> None:
        """States the end of this side, and waits up to `timeouts.answer` for all others' last statements.

        Raises TranscriptError if something differs, or the server has not relayed a statement.
        """
        if not self._others:
            return
        loop = asyncio.get_running_loop()
        answer = self._federation.timeouts.answer
        until = loop.time() + (answer if self._in_step else min(_PATIENCE, answer))
        if self._salt is None:
            await self._wait(lambda: self._salt is not None, until, gone)
        if self._found is None and self._salt is not None:
            self._guard(lambda: self._flush(final=True))
            await self._wait(lambda: all(other.final for other in self._groups), until, gone)
        if self._found is not None:
            raise self._found
        for other in self._groups:
            if not other.final:
                self._withheld(other, f"final statement, of rounds {other.last + 1} to {self._newest}")
        if self._found is not None:
            raise self._found

    async def _wait(self, done: Callable[[], bool], until: float, gone: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not done() and self._found is None and not gone() and (left := until - loop.time()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left, _LOOK)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _note(self, item: Item) -> None:
        """Notes an item, and states the window that it ends.

        Raises ContractError for a second item of the same kind and round: we would act on the first, and state the
        second.
        """
        if isinstance(item, Message) and type(item).__name__ == _RING and self._keys is None:
            self._salt = None
        if isinstance(item, Open) and item.round > self._newest:
            self._open(item.round)
        elif (entry := entry_of(item, self._newest, exact=self._exact)) is not None:
            if (key := (entry.name, entry.round)) in self._noted or key in self._own.entries:
                raise ContractError(SERVER, entry.name, "", f"one in round {entry.round}", "a second")
            self._noted[key] = entry
            if len(self._noted) >= _MOST_ENTRIES:
                self._flush()

    def _open(self, round: int) -> None:
        self._newest = round
        if round - 1 - self._own.last >= self._every:
            self._flush()
        self._own.opened.append(round)
        if self._in_step:
            for other in self._groups:
                if other.last < round - 1 - self._every - _SLACK:
                    self._withheld(other, f"statement of rounds {other.last + 1} to {other.last + self._every}")

    def _flush_if_due(self) -> None:
        if self._due:
            self._guard(self._flush)

    def _flush(self, *, final: bool = False) -> None:
        """States everything noted so far, and compares."""
        if self._salt is None:
            self._due = True
            return
        self._due = False
        key = salt_key(self._session.run, self._session.number if self._keys is not None else 0, self._salt)
        while True:
            noted = list(self._noted.items())
            now, self._noted = dict(noted[:_MOST_ENTRIES]), dict(noted[_MOST_ENTRIES:])
            entries: dict[str, dict[int, str]] = {}
            for (name, round), entry in now.items():
                found = entries.setdefault(name, {})[round] = salted(key, entry)
                self._own.entries[name, round] = found
            if not self._noted:
                break
            self._state(entries=entries)
        last = self._newest if final else max(self._newest - 1, self._own.last)
        opened = rows(round for round in self._own.opened if self._own.last < round <= last)
        self._own.last = last
        self._state(final=final, entries=entries, opened=opened, receipts=self.receipts.state())
        self._forget()
        for other in self._groups:
            other.compare(self._own, in_step=self._in_step)

    def _forget(self) -> None:
        before = self._newest - max(_KEPT * self._every, _LEAST_KEPT)
        self._own.forget(before)
        self.receipts.forget(before)
        for other in self._groups:
            other.forget(before)

    def _state(self, *, final: bool = False, **content: Any) -> None:
        if not self._others:
            return
        body = WindowStatement(self._number, final, dict(self._told), self._own.last, **content).encode()
        self._number += 1
        signature = self._signer.sign(signed(self._name, body))
        self._send(Statement("", body, self._signer.certificate, signature))

    def _hear(self, relayed: Relayed) -> None:
        """Takes statements. Parties whose statements are equal so far are compared together.

        Raises ContractError if the server does not say whose a statement is or who signed it, TranscriptError if a
        statement differs or is no party's.
        """
        try:
            statements = relayed.statements()
        except ValueError as torn:
            raise ContractError(SERVER, "Relayed", "", "a party, a place and a signature of each", str(torn)) from None
        heard, together = set[str](), dict[bytes, list[str]]()
        for said in statements:
            if said.party == self._name:
                continue  # we know it
            if said.party not in self._others:
                raise self._unusable(said.party[:80], "one of another party than those of the roster")
            if len(said.body) > LARGEST:
                raise self._unusable(said.party, f"one of {len(said.body)} bytes")
            self._verify(said.party, said)
            if said.party in heard:  # its next one
                self._take(together)
                heard, together = set(), {}
            heard.add(said.party)
            together.setdefault(said.body, []).append(said.party)
        self._take(together)

    def _take(self, together: dict[bytes, list[str]]) -> None:
        """Takes statements of different parties, by body."""
        for body, names in together.items():
            parts: dict[int, list[str]] = {}
            for name in names:
                parts.setdefault(id(self._others[name]), []).append(name)
            for some in parts.values():
                other = self._others[some[0]]
                if len(some) < len(other.names):
                    other = other.part(some)
                    self._groups.append(other)
                    self._others.update(dict.fromkeys(some, other))
                self._hear_from(other, body)
        self._join()
        self._changed.set()

    def _join(self) -> None:
        """Joins parties that have stated the same in different frames."""
        joined: list[OtherParties] = []
        for other in self._groups:
            if (same := next((one for one in joined if one == other), None)) is None:
                joined.append(other)
            else:
                same.names += other.names
                self._others.update(dict.fromkeys(other.names, same))
        self._groups = joined

    def _hear_from(self, other: OtherParties, body: bytes) -> None:
        try:
            stated = WindowStatement.decode(body)
        except ValueError as bad:
            raise self._unusable(other.name, f"one that cannot be read ({bad})") from None
        self._refuse_other_beginning(other, stated)
        if other.next is not None and stated.number != other.next:
            raise self._out_of_order(other, stated.number)
        if other.next is None and stated.number and self._federation.absence == "rollback":
            raise self._out_of_order(other, stated.number)
        other.next = stated.number + 1
        if stated.salt and self._federation.names[0] in other.names and not self._salt:
            self._take_salt(self._federation.names[0], stated.salt.get(self._name, ""))
        other.take(stated)
        other.compare(self._own, in_step=self._in_step)
        for name in other.names if stated.receipts else ():
            try:
                for dropped in self.receipts.compare(name, stated.receipts):
                    self._report(dropped, False)
            except (ValueError, KeyError):
                raise self._unusable(name, "one whose receipts cannot be read") from None
        self._flush_if_due()

    def _take_salt(self, first: str, box: str) -> None:
        if not box:
            raise self._unusable(first, "one that has the salt for others and not for us")
        self._salt_box = box
        self._open_salt()

    def _open_salt(self) -> None:
        if self._keys is None or not self._salt_box:
            return
        first = self._federation.names[0]
        try:
            self._salt = self._keys.seals.open(first, bytes.fromhex(self._salt_box), _SALT)
        except (ValueError, SealError):
            raise self._unusable(first, "one whose salt cannot be opened") from None
        self._changed.set()

    def _verify(self, other: str, said: Statement) -> None:
        if not self._secure:
            return
        try:
            key = (other, said.certificate)
            if key not in self._verifiers:
                self._verifiers = {known: v for known, v in self._verifiers.items() if known[0] != other}
                self._verifiers[key] = Verifier(other, said.certificate, self._federation.parties.get(other, ""))
            self._verifiers[key].check(f"the statement of {other!r}", signed(other, said.body), said.signature)
        except ForgedError as forged:
            raise self._unusable(other, f"one that was altered ({forged})") from None

    def _refuse_other_beginning(self, other: OtherParties, stated: WindowStatement) -> None:
        """Compares the beginnings. A party that came back has a newer session and its own round."""
        told, own = stated.told, self._told
        common = tuple(part for part in own if part != "offers" or (own[part] and told.get(part)))
        session = told.get("session")
        returned = self._federation.absence != "rollback" and isinstance(session, int) and session != own["session"]
        if returned:
            common = tuple(part for part in common if part not in ("session", "round"))
        refuse_other_parts(other.name, told, own, common)
        if not returned or session == other.session:
            return
        assert isinstance(session, int)
        if session < other.session:
            raise self._unusable(other.name, f"one of session {session} after one of session {other.session}")
        other.begin_again(session, stated.last)

    def _out_of_order(self, other: OtherParties, number: int) -> TranscriptError:
        expected = other.next or 0
        if number < expected:
            return self._unusable(other.name, f"number {number} again")
        return self._missing(other.name, f"statement number {expected}, and has relayed number {number}")

    def _unusable(self, other: str, what: str) -> TranscriptError:
        text = f"the server has relayed as a statement of {other} {what}"
        return TranscriptError(text, other=other, part="statement", round=self._newest)

    def _missing(self, name: str, what: str) -> TranscriptError:
        text = f"the server has not relayed {name}'s {what}"
        hint = _WITHHELD.format(other=name)
        return TranscriptError(text, other=name, part="statement", round=self._newest, hint=hint)

    def _withheld(self, other: OtherParties, what: str) -> None:
        """Fails if every party is in step; otherwise warns once of each, because it may be slow or away."""
        if self._in_step:
            self._find(self._missing(other.name, what))
            return
        for name in [name for name in other.names if name not in self._warned]:
            self._warned.add(name)
            self._report(self._missing(name, what), False)

    def _guard(self, work: Callable[[], object]) -> None:
        if self._found is not None:
            return
        try:
            work()
        except TranscriptError as error:
            self._find(error)

    def _find(self, error: TranscriptError) -> None:
        if self._found is None:
            self._found = error
            self._report(error, True)
            self._fail(error)
            self._changed.set()


def report_finding(telemetry: Telemetry, party: str, error: TranscriptError, ends: bool) -> None:
    """Reports a finding in a party's record; one that does not end the run is a warning too."""
    telemetry.event("finding", party=party, ends=ends, **error.fields())
    if not ends:
        telemetry.event("warning", party=party, reason=f"{error}; {error.hint}")


_LENGTH = 16  # bytes of a hash in a statement


class ToldEntry(NamedTuple):
    """One item: its kind, with the fields that distinguish several of a round, and the SHA-256 of its content."""

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
