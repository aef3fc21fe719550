"""States of a session on one line, and every pair of message kinds in each of them.

A state is the phase of the session, the kind of the parcel that is due and its direction, and the parcel before it. In
each state the parcel that is due is dropped, repeated, held until one of another kind has passed, and replaced by that
of another party; a forged parcel of every kind, of the server and of parties, passes before it; and one of every kind
of its direction in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.session import (
    FROM_EITHER,
    FROM_PARTY,
    HEARS,
    MESSAGE,
    SAYS,
    Stage,
    View,
)
from colonnade.common.errors import DataError
from colonnade.common.messaging.message import PartyMessage, ServerMessage
from colonnade.common.parsing.file import parse
from colonnade.common.wire.frame import BODY
from tests.support.disturbed import End, check, disturbed
from tests.support.federation import NEEDS
from tests.support.forging import Forger
from tests.support.relay import Fault, Passed
from tests.support.tables import COLUMNS, table_tree, write_tables

VICTIM, OTHER = "party1", "party2"
ROUNDS, ROWS, WIDTH, PERSONS = 2, 4, 2, 24
NOTICES = tuple(kind for kind in BODY if kind != "Letter")
FINAL = {"Open", "Close", "Save"}
"""Instructions after which a party leaves out what it has not received."""


class Phase(StrEnum):
    """A part of a session."""

    HANDSHAKE = "handshake"
    READY = "ready"
    ALIGNMENT = "alignment"
    AGREEMENT = "agreement"
    PREPARATION = "preparation"
    ROUND = "round requested"
    SETS = "sets"
    SENDING = "sending"
    RESPONSE = "response"
    EVALUATION = "evaluation"
    SAVING = "saving"
    REWIND = "rewind"
    FAREWELL = "farewell"


_KINDS: Mapping[Phase, str] = {
    Phase.ALIGNMENT: "Held Offers Stated Statements Reused Census Sizes Pledge Pledges Proved Points Common Positions "
    "Kept Settled",
    Phase.AGREEMENT: "KeyOffer KeyRing KeyProof KeyProofs",
    Phase.ROUND: "Open",
    Phase.SETS: "Members Senders SetProof SetProofs SealedShares Arrived Opened OpenedShares",
    Phase.RESPONSE: "Gradient Update",
    Phase.SAVING: "Save Saved",
    Phase.REWIND: "Rewind",
    Phase.FAREWELL: "Close Farewell",
}
SHARED = {Phase.HANDSHAKE, Phase.READY, Phase.SAVING, Phase.FAREWELL}
"""Phases that have no messages of a protocol: their states are those of `split`, and of `recovered`, which has keys."""

_PHASES = {kind: phase for phase, kinds in _KINDS.items() for kind in kinds.split()}


class Line:
    """Follows the parcels of one line through the phases."""

    def __init__(self) -> None:
        self.phase, self._back, self._opened, self._answered = Phase.HANDSHAKE, False, False, False

    def step(self, kind: str) -> Phase:
        """Takes the next parcel; returns the phase in which it was due."""
        if kind in ("Hello", "Welcome", "Begin"):
            here = Phase.READY if kind == "Begin" else Phase.HANDSHAKE
            self.phase = Phase.REWIND if self._back else here
            self._opened, self._back = False, self._back and kind != "Begin"
        elif kind in ("Statement", "Relayed"):
            pass
        elif kind in _PHASES and not (self._answered and _PHASES[kind] is Phase.SETS):
            self.phase = _PHASES[kind]
            self._back = self._back or kind == "Rewind"
            self._opened = self._opened or kind == "Open"
            self._answered = kind != "Open" and (self._answered or self.phase is Phase.RESPONSE)
        elif not self._opened:
            self.phase = Phase.PREPARATION
        else:
            self.phase = Phase.EVALUATION if self._answered or kind == "Evaluation" else Phase.SENDING
        return self.phase


@dataclass(frozen=True)
class Setting:
    """A federation that is disturbed.

    Args:
        protocol: the section of the configuration.
        parties: in the roster.
        federation: other keys.
        until: kind of the parcel from which on states are those of another setting.
        whole: True if its states of the shared phases, and those after a rewind, are tried too.
    """

    protocol: Mapping[str, Any]
    parties: int = 2
    federation: tuple[tuple[str, Any], ...] = ()
    until: str = ""
    whole: bool = False

    @property
    def aligned(self) -> bool:
        """True if members find their common rows first."""
        return "align" in dict(self.federation)

    def config(self) -> Config:
        """Of all members."""
        name, more = self.protocol["name"], dict(self.federation)
        tree = table_tree(
            self.parties,
            **{
                "protocol": dict(self.protocol), "rounds": ROUNDS, "epochs": 0, "batch": ROWS, "align": "none",
                "rows": {"validation": 0, "test": ROWS}, "checkpoint": {"rounds": 1}, "transcript": {"every": 2},
                "public_start": True,  # models are compared to the last bit
                "timeouts": {"answer": 20, "away": 20}, **more,
            },
        )  # fmt: skip
        for party in tree["parties"].values():
            party.update(NEEDS.get(name, {}))
            if name in NEEDS:
                party["data"]["scale"] = "unit"
            if not self.aligned:
                del party["data"]["id"]
        if not self.aligned:
            del tree["server"]["labels"]["id"]
        return parse(tree)

    def write(self, folder: Path) -> None:
        """Writes the members' tables."""
        if self.aligned:
            write_tables(folder, self.parties, PERSONS)
            return
        for place, member in enumerate([SERVER, *(f"party{n}" for n in range(1, self.parties + 1))]):
            head = "label" if member == SERVER else ",".join(f"c{n}" for n in range(COLUMNS))
            lines = [
                str(row % 2) if member == SERVER else ",".join(f"{((row + 3) * (n + 5 * place)) % 7 - 3 + row % 2}"
                                                              for n in range(1, COLUMNS + 1))
                for row in range(PERSONS)
            ]  # fmt: skip
            (folder / f"{member}.csv").write_text("\n".join([head, *lines, ""]))


_QUORUM = ("quorum", {"need": 3, "grace": 1.0})
_BLINDED = {"name": "split_avg", "embedding": WIDTH, "aggregate": "blinded"}
_CODED = {"name": "fedvs", "embedding": WIDTH, "segments": 1}
SETTINGS: Mapping[str, Setting] = {
    "split": Setting({"name": "split", "embedding": WIDTH}, whole=True),
    "duals": Setting({"name": "vimadmm"}),
    "arrivals": Setting({"name": "vafl", "embedding": WIDTH, "arrivals": True}),
    "codes": Setting({"name": "codes", "steps": 2}),
    "blinded": Setting(_BLINDED, 3),
    "confirmed": Setting(_BLINDED, 4, (_QUORUM,)),
    "recovered": Setting(_BLINDED, 4, (_QUORUM, ("blinding", {"recovery": "alone"})), whole=True),
    "coded": Setting(_CODED, 4, (_QUORUM,)),
    "aligned": Setting({"name": "split", "embedding": WIDTH}, 2, (("align", "psi"),), "Save"),
    "signed": Setting({"name": "split", "embedding": WIDTH}, 2, (("align", "psi"), ("align_checks", "signed")), "Open"),
    "proved": Setting({"name": "split", "embedding": WIDTH}, 2, (("align", "psi"), ("align_checks", "proofs")), "Open"),
}
"""Federations, each with message kinds that the others have not."""

REWOUND = Fault("cut", "Open", OTHER, 1)
"""Another party's connection breaks in the second round: all go back to the checkpoint of the first."""


@cache
def sound(setting: str, *, rewound: bool = False) -> End:
    """The same federation without a fault, or with the broken connection alone."""
    return _run(setting, (REWOUND,) if rewound else ())


@cache
def _config(setting: str) -> Config:
    return SETTINGS[setting].config()


def _run(setting: str, faults: Iterable[Fault]) -> End:
    forger = None if not any(fault.other for fault in faults) else Forger(sound(setting).relay.passed, OTHER)
    return disturbed(_config(setting), *faults, forge=forger, prepare=SETTINGS[setting].write)


@dataclass(frozen=True)
class State:
    """A state of the line of `VICTIM`.

    Args:
        setting: of the federation.
        rewound: True if it comes after a rewind.
        phase: of the session.
        due: kind of the next parcel.
        number: of that parcel among those of its kind and direction.
        up: True if the party sends it.
    """

    setting: str
    rewound: bool
    phase: Phase
    due: str
    number: int
    up: bool


@cache
def states(setting: str, *, rewound: bool = False) -> tuple[State, ...]:
    """Every state of a federation's line once, where it comes first.

    Args:
        setting: of the federation.
        rewound: True for those from the rewind on, until rounds are as in the first session.
    """
    found: dict[tuple[object, ...], State] = {}
    if rewound and not SETTINGS[setting].whole:
        return ()
    ends = dict.fromkeys(View, Stage.DIALLED)
    line, seen, before, back = Line(), dict[tuple[str, bool], int](), "", not rewound
    for passed in _line(sound(setting, rewound=rewound).relay.passed):
        kind, up = passed.piece.kind, passed.up
        number = seen.get((kind, up), 0)
        seen[kind, up] = number + 1
        phase = line.step(kind)
        event = kind if kind in NOTICES else MESSAGE
        sender, receiver = (View.PARTY, View.SERVER) if up else (View.SERVER, View.PARTY)
        for role, table in ((sender, SAYS), (receiver, HEARS)):  # a sound run follows the table of a session
            ends[role] = table[role][ends[role]][event]
        if kind == SETTINGS[setting].until or (rewound and back and kind == "Save"):
            break
        back = back or kind == "Rewind"
        if back and (SETTINGS[setting].whole or phase not in SHARED):
            found.setdefault((phase, kind, up, before), State(setting, rewound, phase, kind, number, up))
        before = kind
    return tuple(found.values())


def _line(passed: Iterable[Passed]) -> list[Passed]:
    return [one for one in passed if one.party == VICTIM]


@dataclass(frozen=True)
class Case:
    """A state with what happens to the parcel that is due."""

    state: State
    fault: Fault

    def run(self) -> End:
        """The federation with this fault."""
        return _run(self.state.setting, [*([REWOUND] if self.state.rewound else []), self.fault])

    def words(self) -> dict[str, Any]:
        """For a record."""
        return {**asdict(self.state), **asdict(self.fault)}

    @property
    def learned(self) -> bool:
        """True if what is learned may differ: a message of training was taken away, or one forged.

        Only a false member can do so: TLS lets no stranger.
        """
        fault, setting = self.fault, self.state.setting
        if SETTINGS[setting].protocol.get("arrivals"):
            return True  # messages count as they come
        if fault.act in ("drop", "hold", "instead") and (fault.kind not in NOTICES or fault.kind in FINAL):
            return True
        return fault.act in ("before", "instead") and (fault.other not in NOTICES or fault.other in FINAL)


@cache
def cases(setting: str, *, rewound: bool = False) -> tuple[Case, ...]:
    """Every pair of kinds in every state."""
    return tuple(Case(state, fault) for state in states(setting, rewound=rewound) for fault in _faults(state))


def _faults(state: State) -> Iterator[Fault]:
    where = (state.due, VICTIM, state.number)
    yield Fault("drop", *where, up=state.up)
    yield Fault("repeat", *where, up=state.up)
    for kind in _later(state):
        yield Fault("hold", *where, kind, state.up)
    for kind in _kinds(state.setting):
        yield Fault("before", *where, kind, state.up)
    for kind in _kinds(state.setting, up=state.up):
        yield Fault("instead", *where, kind, state.up)


@cache
def _kinds(setting: str, *, up: bool | None = None) -> list[str]:
    """All kinds, or those of one direction: True from a party."""
    kinds = sound(setting).relay.kinds
    if up is None:
        return [*kinds, *NOTICES]
    sender = PartyMessage if up else ServerMessage
    notices = [kind for kind in NOTICES if kind in FROM_EITHER or (kind in FROM_PARTY) == up]
    return [*(name for name, kind in kinds.items() if issubclass(kind, sender)), *notices]


def _later(state: State) -> list[str]:
    """Kinds that pass in the same direction after the parcel that is due."""
    passed = [one for one in _line(sound(state.setting, rewound=state.rewound).relay.passed) if one.up == state.up]
    own = [place for place, one in enumerate(passed) if one.piece.kind == state.due]
    return sorted({one.piece.kind for one in passed[own[state.number] + 1 :]})


@dataclass(frozen=True)
class Outcome:
    """The end of a case.

    Args:
        case: which was played.
        end: of the federation.
    """

    case: Case
    end: End

    @property
    def liar(self) -> str:
        """The false member."""
        return VICTIM if self.case.state.up else SERVER

    @property
    def error(self) -> BaseException | None:
        """Of the member that hears the false one."""
        return self.end.errors[SERVER if self.case.state.up else VICTIM]

    @property
    def name(self) -> str:
        """In a word or two."""
        if not self.end.relay.struck:
            return "not reached"
        if self.error is not None:
            return type(self.error).__name__
        return "the same result" if self._same else "another result"

    @property
    def _same(self) -> bool:
        """Of rows that are aligned the order is drawn in every run, so that models differ: rows alone are compared."""
        other = sound(self.case.state.setting)
        if SETTINGS[self.case.state.setting].aligned:
            return all(set(found) == set(other.persons[name]) for name, found in self.end.persons.items())
        return all(
            name in models and models[name] == newest
            for (name, newest), models in zip(
                ((max(models), models[max(models)]) for models in other.models.values()),
                self.end.models.values(), strict=True,
            )
        )  # fmt: skip

    @property
    def said(self) -> str:
        return str(self.error or "")

    def check(self) -> None:
        """Fails if a member broke a rule, or does not say who or what made it end."""
        fault, everybody = self.case.fault, (SERVER, *_config(self.case.state.setting).federation.names)
        aligned = SETTINGS[self.case.state.setting].aligned
        if isinstance(self.error, DataError):  # forged lists have no key in common, and nobody can be named
            assert aligned and self.case.learned, self.said
        elif self.error is not None and fault.other != "Failure":  # else it says what it was told
            named = (VICTIM,) if self.case.state.up else (fault.kind, *everybody)
            assert any(name in self.said for name in named), self.said
        before = sound(self.case.state.setting)
        assert all(models.keys() <= before.models[name].keys() for name, models in self.end.models.items())
        assert (self.end.status == "completed") == (self.end.errors[SERVER] is None), self.end.status
        check(self.end, before, learned=self.case.learned or self.left_out or aligned)
        if aligned and not self.case.learned:
            assert len(set(self.end.persons.values())) <= 1, self.end.persons

    @property
    def left_out(self) -> bool:
        """True if the agreed quorum has let a round go on without a party."""
        return any(event["kind"] in ("missing", "abandoned", "partial_sum", "late") for event in self.end.events)
