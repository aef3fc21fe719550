"""The run that a party's folder belongs to, pinned at its first Begin, because the server names runs and rounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock

from colonnade.client.dialling.instructions import ended_early
from colonnade.client.privacy.codes import DRAWS, PLACES
from colonnade.common.aggregation.summed_sets import NAME as SUMS
from colonnade.common.aggregation.summed_sets import times_written
from colonnade.common.alignment.limits import NAME as FOREIGN
from colonnade.common.alignment.limits import ForeignKeys
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Begin, Item, Open, Save
from colonnade.common.errors import CheckpointError, ContractError, EnvironmentFault, disk_faults
from colonnade.common.privacy.accounting.ledger import LOST, mark, refuse_shorter
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.files import write_kept
from colonnade.common.run.json_text import sealed, unsealed, whole
from colonnade.common.run.run_cache import RunCache, read_any
from colonnade.common.run.run_folder import STAMP, PartyFolder
from colonnade.common.run.start_secret import StartSecret

_RUN = re.compile(r"[0-9A-Za-z_-]{1,64}")
_ANOTHER = "choose another --out for another run; this run goes on with the folder that its server began it with"


@dataclass(frozen=True)
class Pinned:
    """Content of the pin on the disk.

    Args:
        run: "" if none was pinned.
        backed_off: largest number of times that the run went back after a divergence.
        entered: no later round was entered; reserved in blocks. 0 if unknown.
        ledger: length and newest hash of the ledger when the pin was last written; "" before version 0.3.
        grown: lengths of other records at that time, by file.
        start: whether the party's start is secret or public; "" in runs begun before this was stored, which are public.
        model: round of the checkpoint whose model is the run's; 0 for the newest.
        stops: True if the run began with early stopping by default, which versions before 0.3 did not have.
    """

    run: str = ""
    session: int = 0
    committed: bool = False
    backed_off: int = 0
    entered: int = 0
    start: str = ""
    stops: bool = False
    model: int = 0
    ledger: str = ""
    grown: dict[str, int] = field(default_factory=dict)


_AHEAD = 1000  # rounds reserved at once, to avoid a write every round


class Pin:
    """Refuses every Begin that would discard something of the pinned run.

    Args:
        folder: the party's; None keeps the pin in memory.
        predicts: True for predictions, which use no learning rates: the server says nothing about them.
        public: True if a run that begins here has a public start.

    Attributes:
        start: the secret of the party's own draws, kept with the first Begin.

    Raises CheckpointError if the pin is torn, was altered, or is missing beside checkpoints; the secret is missing; or
    a record is shorter than when the pin was written.
    """

    def __init__(
        self, party: str, folder: Path | None, store: Checkpoints, *, predicts: bool = False, public: bool = False
    ) -> None:
        self._party, self._store, self._predicts = party, store, predicts
        self._folder = own = None if folder is None else PartyFolder(folder)
        self._writing = Lock()  # checkpoints are written by threads
        self.content = Pinned(store.run()) if own is None else self._read(own)
        if own is not None:
            self._refuse_lost(own)
        recorded = self.content.start if self.run else None  # a folder without state may begin anew
        self.start = StartSecret(None if own is None else own.start, recorded, public=public, needed=not predicts)

    @property
    def run(self) -> str:
        return self.content.run if self._holds() else ""

    @property
    def committed(self) -> bool:
        return self.content.committed

    def admit(self, begin: Begin) -> None:
        """Records a Begin durably before it is acted on. Raises CheckpointError if the folder belongs to another run,
        ContractError if the session is not newer, the run would begin anew, or lowered rates would be raised,
        EnvironmentFault if the pin cannot be written.
        """
        with self._writing:
            self._write(self._admitted(begin))

    def _admitted(self, begin: Begin) -> Pinned:
        if not _RUN.fullmatch(begin.run):
            raise ContractError(SERVER, "Begin", "run", "1 to 64 letters and digits", repr(begin.run[:80]))
        pinned = self.content
        if begin.run != pinned.run:
            self._refuse_another(begin.run)
            # the folder holds nothing of the earlier run, but its pin has decided how the configuration was read
            pinned = Pinned(begin.run, stops=pinned.stops or not pinned.run)
        if begin.session <= pinned.session:
            raise ContractError(SERVER, "Begin", "session", f"more than {pinned.session}", str(begin.session))
        if not begin.round and pinned.committed:
            expected = "a checkpoint's, since one was committed in this run"
            raise ContractError(SERVER, "Begin", "round", expected, "0")
        self._refuse_invented(begin, pinned)
        if begin.backed_off < pinned.backed_off and not self._predicts:
            raise ContractError(SERVER, "Begin", "backed_off", f"at least {pinned.backed_off}", str(begin.backed_off))
        committed = pinned.committed or begin.round > 0
        backed_off = pinned.backed_off if self._predicts else begin.backed_off
        self.start.keep()  # first: a pin without its secret means that the secret was lost
        pinned = replace(pinned, session=begin.session, committed=committed, start=self.start.record)
        return replace(pinned, backed_off=backed_off)

    def seal(self, saved: Save | None = None) -> None:
        """Records the lengths of all records, so that an older copy is noticed.

        If `saved` is durable, also records the round of the run's model.
        """
        with self._writing:  # a checkpoint's thread seals while rounds are entered
            if self.content.run:
                self._write(self.content if saved is None else replace(self.content, model=saved.model))

    def refuse_early_end(self, always: bool, last: Callable[[], int]) -> None:
        """Raises PartyLost if the server says farewell instead of Begin, unless the run can have ended without us.

        Args:
            always: True if it can only have ended without us when the connection broke after the last checkpoint.
            last: returns the round before which it cannot end; only called if we hold a checkpoint.
        """
        if not always and self.run:
            return
        held = self._store.rounds()
        if not held or held[0] < last():
            raise ended_early()

    def enter(self, round: int) -> None:
        """Records a round durably before it is entered, reserving a block of rounds ahead. Raises EnvironmentFault."""
        if round > self.content.entered and not self._predicts:
            with self._writing:
                self._write(replace(self.content, entered=round + _AHEAD))

    def note(self, save: Save) -> None:
        """Records from a Save whether a checkpoint was committed. Raises EnvironmentFault."""
        if save.keep and not self.content.committed:
            with self._writing:
                self._write(replace(self.content, committed=True))

    def before_rounds(
        self, deliver: Callable[[Item], None], fail: Callable[[Exception], None]
    ) -> Callable[[Item], None]:
        """Wraps the delivery of items: records every round that the server opens before it is entered.

        `fail` ends the party side if the record cannot be written: an exception would end the connection's reader
        instead, as if the server were gone.
        """

        def receive(item: Item) -> None:
            try:
                if isinstance(item, Open):
                    self.enter(item.round)
            except EnvironmentFault as full:
                fail(full)
            else:
                deliver(item)

        return receive

    def _refuse_invented(self, begin: Begin, pinned: Pinned) -> None:
        """Refuses to continue from a round of which we hold no checkpoint."""
        if not begin.round:
            return
        held = self._store.rounds()
        if begin.round in held and (self._predicts or not pinned.entered or begin.round <= pinned.entered):
            return
        ours = ", ".join(str(round) for round in held if not pinned.entered or round <= pinned.entered) or "none"
        expected = f"that of a checkpoint which {self._party} holds ({ours})"
        raise ContractError(SERVER, "Begin", "round", expected, str(begin.round))

    def _refuse_another(self, run: str) -> None:
        if self._folder is None or not self._holds():
            return
        ours, file = self.content.run, self._folder.pinned.name
        holds = f"records of run {ours}" if ours else f"records of a run, and no {file} that says of which"
        raise CheckpointError(
            f"{self._party}: {self._folder.path} holds {holds}, and the server begins run {run}",
            hint=_ANOTHER,
            shared=f"its folder holds records of another run than {run}",
        )

    def _holds(self) -> bool:
        if (own := self._folder) is None:
            return bool(self.content.run)
        folders = (own.run_cache, own.prediction_cache, own.checkpoints)
        return own.has_sent or any(folder.is_dir() and any(folder.iterdir()) for folder in folders)

    def _read(self, own: PartyFolder) -> Pinned:
        path = own.pinned
        if not path.exists():
            if run := self._store.run():  # every version wrote the pin before its first checkpoint
                raise CheckpointError(f"{path} is missing, and there are checkpoints of run {run}", hint=LOST)
            return Pinned()
        try:
            kept = unsealed(path.read_bytes())
            return Pinned(
                str(kept["run"]),
                whole(kept["session"]),
                bool(kept["committed"]),
                backed_off=whole(kept["backed_off"]),
                entered=whole(kept["entered"]),
                start=str(kept.get("start", "")),
                model=whole(kept.get("model", 0)),
                stops=bool(kept.get("stops", False)),
                ledger=str(kept.get("ledger", "")),
                grown={str(name): whole(count) for name, count in kept.get("grown", {}).items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise CheckpointError(f"{path} is torn or was altered", hint=_ANOTHER) from None

    def _refuse_lost(self, own: PartyFolder) -> None:
        """Raises CheckpointError if a record beside the pin is shorter than when the pin was last written."""
        if self.content.ledger:
            refuse_shorter(own.ledger, self.content.ledger)
        elif (self.content.entered or self.content.committed) and not own.ledger.exists():
            raise CheckpointError(
                f"{own.ledger} is missing, and messages of run {self.content.run} have left", hint=LOST
            )
        refuse_older(own, self.content.grown)

    def _write(self, pinned: Pinned) -> None:
        if (own := self._folder) is not None:
            with disk_faults(f"{own.ledger} cannot be read", "make room on the disk, then resume"):
                pinned = replace(pinned, ledger=mark(own.ledger), grown=grown(own))
            write_kept(own.pinned, sealed({**asdict(pinned), **STAMP}), 0o600)
        self.content = pinned


def grown(folder: PartyFolder) -> dict[str, int]:
    """Length of each record that exists, by path in the folder. Raises CheckpointError if one is damaged."""
    return {
        path.relative_to(folder.path).as_posix(): found for path, count in _counts(folder) if (found := count(path))
    }


def refuse_older(folder: PartyFolder, before: dict[str, int]) -> None:
    """Raises CheckpointError if a record is shorter than `before` says, or damaged."""
    now = grown(folder)
    for name, count in before.items():
        if now.get(name, 0) < count:
            path = folder.path / name
            what = "is older than the pin beside it" if name in now else "is missing"
            raise CheckpointError(
                f"{path} {what}: it records what this party has given already",
                hint="restore it from a newer copy, or begin a new run in another folder",
            )


def _counts(folder: PartyFolder) -> Iterator[tuple[Path, Callable[[Path], int]]]:
    yield folder.run_cache / f"{SUMS}.record", lambda path: times_written(RunCache(path.parent))
    for cache in (folder.run_cache, folder.prediction_cache):
        yield cache / FOREIGN, lambda path: ForeignKeys(path.parent.name, path=path).counted
    yield folder.codes / PLACES, lambda path: len(read_any(path)) if path.exists() else 0
    for draws in DRAWS:
        yield folder.codes / draws, lambda path: int(read_any(path).any(1).sum()) if path.exists() else 0
