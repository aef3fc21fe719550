"""Files of a simulated run: those that the members' own processes would leave, in the same folders."""

from __future__ import annotations

import json
from pathlib import Path

from colonnade.common.config.members import Config
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.table_cache import TableCache
from colonnade.common.parsing.dump import config_tree
from colonnade.common.parsing.member_files import config_files
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.durable import write_durably
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import STAMP, RunFolder
from colonnade.server.member.saving import run_number


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

    def home(self, member: str) -> Path:
        found = self.folder.member(member)
        found.make()
        return found.path

    def checkpoints(self, member: str) -> Checkpoints:
        return Checkpoints(self.folder.member(member).checkpoints)

    def encoder(self, member: str) -> EncoderFile:
        return EncoderFile(self.home(member), begun=bool(self.checkpoints(member).run()))

    def tables(self, member: str) -> TableCache:
        return TableCache(self.folder.member(member).path, writes=True)

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
