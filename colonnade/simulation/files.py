"""Files of a simulated run: those that the members' own processes would leave, in the same folders."""

from __future__ import annotations

import json
from pathlib import Path

from colonnade.client.member.pin import Pin
from colonnade.common.config.members import Config
from colonnade.common.conversation.control import Save
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.membership import Begin
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.table_cache import TableCache
from colonnade.common.parsing.dump import config_tree
from colonnade.common.parsing.member_files import config_files
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.durable import write_durably
from colonnade.common.run.json_lines import read_lines
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import STAMP, RunFolder
from colonnade.common.run.start_secret import PUBLIC, StartSecret
from colonnade.common.run.state import Snapshot
from colonnade.server.member.saving import common_round, read_committed, run_number
from colonnade.server.member.session_numbers import SessionNumbers


class RunFiles:
    """The folder of a simulated run.

    Args:
        whole: True for the whole tables, so that the run can resume and predict; False for a sample of rows, which is
            used only by attacks.

    Attributes:
        begun: True if the folder holds a run to resume.
    """

    def __init__(self, folder: Path, config: Config, base: Path, *, whole: bool = True) -> None:
        self.folder, self._config, self._base, self._whole = RunFolder(folder), config, base, whole
        self.begun = self.folder.run.exists()
        self.number = run_number(self.folder, Checkpoints(self.folder.checkpoints))
        self._members = (SERVER, *config.federation.names)
        self.session = Session()
        self._pins: dict[str, Pin] = {}

    def begin(self) -> int:
        """Writes the run's number and a new session. Returns the round after which the run continues.

        Raises:
            CheckpointError: checkpoints are of another run or configuration, or no round is complete at all members.
        """
        self.folder.make()
        held = {member: self.checkpoints(member).usable(self.owner(member)) for member in self._members}
        round = common_round(held, self._committed())
        self.folder.record(self.number, self._config.federation.id, PUBLIC)
        session = SessionNumbers(self.folder.path).after(0)
        agreed = self._config.federation
        self.session = Session(agreed.id, self.number, session, agreed.hashes(), agreed.pins, round, self.backed_off)
        for name in self._config.federation.names:
            home = self.home(name)
            pin = self._pins[name] = Pin(name, home, self.checkpoints(name), public=True)
            pin.admit(Begin(session, agreed.names, self.number, round, backed_off=self.backed_off))
        for member in self._members:
            self.checkpoints(member).drop_after(round)
        return round

    def states(self, round: int) -> dict[str, Snapshot]:
        return {member: self.checkpoints(member).load(round, self.owner(member)) for member in self._members}

    def secret(self, member: str) -> bytes | None:
        """A member's secret, if separate processes began the run; None if it is public."""
        if member != SERVER:
            return self._pins[member].start.value
        return StartSecret(self.folder.start, self.folder.start_record(), public=True).value

    def home(self, member: str) -> Path:
        found = self.folder.member(member)
        found.make()
        return found.path

    def owner(self, member: str) -> Owner:
        return Owner(member, self.number, self._config.federation.lasting_hashes())

    def checkpoints(self, member: str) -> Checkpoints:
        return Checkpoints(self.folder.member(member).checkpoints)

    def save(self, party: str, save: Save, snapshot: Snapshot) -> None:
        self._pins[party].note(save)
        store = self.checkpoints(party)
        store.save(save.round, snapshot, self.owner(party))
        store.prune({save.round, save.keep, save.best})
        self._pins[party].seal(save)

    def ledger(self, party: str, after: int) -> Ledger:
        return Ledger(self.folder.party(party).ledger, after)

    def encoder(self, member: str) -> EncoderFile:
        return EncoderFile(self.home(member), begun=bool(self.checkpoints(member).run()))

    def tables(self, member: str) -> TableCache:
        return TableCache(self.folder.member(member).path, writes=True)

    def run_cache(self, member: str) -> RunCache:
        return RunCache(self.folder.member(member).run_cache)

    def seconds_before(self) -> float:
        """Time of the newest event of earlier starts, 0 if there is none."""
        return max((float(event.get("time", 0)) for event in read_lines(self.folder.events)), default=0.0)

    def keep_config(self) -> None:
        tree = config_tree(self._config)
        place = self.folder.launch if self._whole else self.folder.simulated
        for path, text in {
            **config_files(tree, self.folder),
            place: json.dumps({"base": str(self._base), "clock": "virtual", **({} if self._whole else STAMP)}),
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, text.encode())

    @property
    def backed_off(self) -> int:
        return read_committed(self.folder.checkpoints / "committed.json")[3]

    def _committed(self) -> int:
        return read_committed(self.folder.checkpoints / "committed.json")[0]
