"""Capture of the messages on a party's link, on its own disk: for research on one's own runs, off by default.

A capture is an append-only file of records: a head (direction, session, bytes) and the frame from the wire, so that a
reader decodes and checks it like any receiver. Outgoing messages are captured after the egress and the privacy stage:
exactly what leaves. Evaluations have a file of their own, which is restarted with every evaluation if only the last is
wanted.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Literal

from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.run_options import CaptureConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.compression import arriving
from colonnade.common.conversation.conversation import SERVER, Carrier
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ColonnadeError, InputError, disk_faults
from colonnade.common.messaging.message import Message, check
from colonnade.common.run.files import open_own, shorten_own
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.wire.codec import Codec, WireError
from colonnade.common.wire.frame import pack, unpack

Way = Literal["out", "in"]


HEAD = struct.Struct("<BIQ")  # way, session, bytes of the frame that follows
_WAYS: Mapping[int, Way] = {0: "out", 1: "in"}
_NUMBERS = {way: number for number, way in _WAYS.items()}


@dataclass(frozen=True)
class Captured:
    """One message that crossed a party's link: from the party ("out") or to it ("in")."""

    way: Way
    session: int
    message: Message

    @property
    def round(self) -> int:
        return self.message.round


class Capture:
    """Captures one session, given its random number, at a party; the schedule gives a round's epoch."""

    def __init__(
        self, folder: Path, config: CaptureConfig, federation: FederationConfig, schedule: Schedule, session: int = 1
    ) -> None:
        contract = CONTRACTS[federation.protocol.name]
        self._config, self._schedule, self._session = config, schedule, session
        self._codec = Codec(contract.kinds)
        own = PartyFolder(folder)
        self._training, self._evaluations = _CaptureFile(own.capture), _CaptureFile(own.evaluation_capture)
        self._evaluated = 0  # the round of the last captured evaluation

    def outward(self, carry: Carrier) -> Carrier:
        """Wraps `carry` so that messages that the party sends are captured first."""

        def send(item: Item) -> None:
            self._keep("out", item)
            carry(item)

        return send

    def inward(self, deliver: Callable[[Item], None]) -> Callable[[Item], None]:
        """Wraps `deliver` so that messages that the party receives are captured first."""

        def receive(item: Item) -> None:
            self._keep("in", item)
            deliver(item)

        return receive

    @property
    def size(self) -> int:
        """Bytes of both files, earlier sessions included."""
        return self._training.size + self._evaluations.size

    def close(self) -> None:
        self._training.close()
        self._evaluations.close()

    def _keep(self, way: Way, item: Item) -> None:
        if not isinstance(item, Message):
            return
        if not evaluates(item):
            if self._wanted(item.round):
                self._write(self._training, way, item)
        elif self._config.evaluations == "all" or (self._config.evaluations == "last" and self._newest(item.round)):
            self._write(self._evaluations, way, item)

    def _newest(self, round: int) -> bool:
        """True unless a later evaluation was captured already; deletes the capture of earlier ones."""
        if round > self._evaluated:
            self._evaluations.empty()
            self._evaluated = round
        return round == self._evaluated

    def _wanted(self, round: int) -> bool:
        epoch, last = (math.ceil(self._schedule.epoch(number)) for number in (round, self._schedule.rounds))
        return epoch % self._config.every == 0 or epoch == last

    def _write(self, file: _CaptureFile, way: Way, message: Message) -> None:
        frame = pack(message, 0, self._codec)
        file.add(HEAD.pack(_NUMBERS[way], self._session, len(frame)) + frame)


def evaluates(message: Message) -> bool:
    """True if a message concerns validation or test rows: it names a part, or a stage after the training batch."""
    return hasattr(message, "part") or getattr(message, "stage", 0) > 0


def has_capture(folder: Path) -> bool:
    own = PartyFolder(folder)
    return own.capture.is_file() or own.evaluation_capture.is_file()


def read_capture(path: Path, federation: FederationConfig) -> Iterator[Captured]:
    """The messages of a capture file in the order of capture, decoded and checked as by their receivers.

    Messages sent again after a rollback occur twice: for a round and kind, the latest session counts. A last record
    truncated by a crash is left out; a missing file is empty.
    """
    newest: dict[tuple[Way, type, int], int] = {}
    if len({record.session for record in _records(path)}) > 1:
        for one in _decoded(path, federation):
            newest[one.way, type(one.message), one.round] = one.session
    for one in _decoded(path, federation):
        if newest.get((one.way, type(one.message), one.round), one.session) == one.session:
            yield one


@dataclass(frozen=True)
class _CaptureRecord:
    """A record and its end in the file; its frame is read on demand, before the next record is requested."""

    way: Way
    session: int
    end: int
    read: Callable[[], bytes]


def _decoded(path: Path, federation: FederationConfig) -> Iterator[Captured]:
    contract = CONTRACTS[federation.protocol.name]
    kinds, limits = contract.kinds, contract.limits_of(federation)
    forms = {"out": arriving(federation.compress, kinds), "in": dict.fromkeys(kinds, form_of(federation.compress.down))}
    codecs = {way: Codec(kinds, form, limits) for way, form in forms.items()}
    for number, record in enumerate(_records(path), 1):
        way = record.way
        try:
            (parcel,) = unpack(record.read(), 0, codecs[way])
            if not isinstance(parcel, Message):
                raise WireError("a message", type(parcel).__name__)
            check(SERVER if way == "in" else "the party", parcel, limits)
        except (WireError, ColonnadeError, ValueError) as wrong:
            raise InputError(
                f"{path}: record {number} is no message of a {contract.name} run: {wrong}",
                hint="read it with the configuration that it was captured under",
            ) from wrong
        yield Captured(way, record.session, parcel)


def _records(path: Path) -> Iterator[_CaptureRecord]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        place, end = 0, path.stat().st_size
        while place + HEAD.size <= end:
            file.seek(place)
            number, session, size = HEAD.unpack(file.read(HEAD.size))
            place += HEAD.size + size
            if number not in _WAYS:
                raise InputError(f"{path} is no capture: a record goes way {number}", hint="0 is out, 1 is in")
            if place > end:
                return  # truncated by a crash
            yield _CaptureRecord(_WAYS[number], session, place, partial(file.read, size))


class _CaptureFile:
    """A file of records, opened with the first one. A record truncated by a crash is removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None

    @property
    def size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def add(self, record: bytes) -> None:
        with self._faults():
            self._file = self._file or self._open()
            if self._file.write(record) != len(record):
                raise OSError(0, "it took only a part")

    def empty(self) -> None:
        with self._faults():
            if self._path.exists():
                shorten_own(self._path, 0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> FileIO:
        if self._path.exists():
            shorten_own(self._path, max((record.end for record in _records(self._path)), default=0))
        # Readable by the owner only: it shows what the server saw and what the party could infer.
        return FileIO(open_own(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")

    def _faults(self) -> AbstractContextManager[None]:
        hint = "make room on the disk and resume, or leave `capture` out"
        return disk_faults(f"the capture {self._path} cannot be written", hint)
