"""The parties of a run that `up` made, restarted for predictions."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

from colonnade.common.config.members import Config
from colonnade.common.errors import PartyFailed
from colonnade.common.parsing.dump import config_tree, yaml_text
from colonnade.common.parsing.file import parse
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.launcher.processes import Processes, last_words, thread_share
from colonnade.launcher.scratch import temporary_identities

_LINGER = 15.0  # seconds that they have for their farewell


class Answerers:
    """A process for every party, each with its own file, folder and throw-away keys.

    Args:
        keys: folder for keys, files and the server's address, for the duration of the predictions.
        needed: True if every party must be there; otherwise those without a folder are left out.
    """

    def __init__(self, config: Config, base: Path, folder: Path, keys: Path, *, insecure: bool, needed: bool) -> None:
        self._base, self._folder, self._keys, self._insecure = base, RunFolder(folder), keys, insecure
        self._address, self._needed = keys / "address", needed
        self._all = config.federation.names
        self.names = [name for name in self._all if needed or self._home(name).path.exists()]
        tree = config_tree(config)
        if not insecure:
            self._identify(tree)
        tree["server"]["listen"] = "127.0.0.1:0"
        self._tree, self.config = tree, parse(tree, begun=True)
        self.threads = thread_share(len(self.names) + 1)

    def start(self, processes: Processes) -> None:
        for name in self.names:
            file = self._keys / f"{name}.yaml"
            own = {"federation": self._tree["federation"], "parties": {name: self._tree["parties"][name]}}
            file.write_text(yaml_text(own), encoding="utf-8")
            argv = ["answer", str(file), "--in", str(self._home(name).path), "--base", str(self._base)]
            argv += ["--server-file", str(self._address), *(["--insecure"] if self._insecure else [])]
            processes.start(name, argv, self._log(name), threads=self.threads)

    def note(self, event: dict[str, Any]) -> None:
        if event["kind"] == "listening":
            partial = self._address.with_suffix(".partial")
            partial.write_text(event["address"], encoding="utf-8")
            partial.replace(self._address)

    async def watch(self, processes: Processes) -> None:
        """Waits until a needed party fails, or all have ended. Raises PartyFailed with its last error."""
        while True:
            await asyncio.sleep(0.2)
            processes.wait(0.0)
            for name, code in processes.codes.items():
                if code and (self._needed or len(processes.codes) == len(self.names)):
                    reason, hint = last_words(self._log(name), code)
                    raise PartyFailed(name, reason, hint=hint)

    def in_its_words(self, failed: PartyFailed, processes: Processes) -> PartyFailed:
        """The failure with the reason from the party's own log, which may be read on this machine."""
        deadline = time.monotonic() + _LINGER
        while failed.party in processes.running() and time.monotonic() < deadline:
            processes.wait(0.1)
        if not (code := processes.codes.get(failed.party)):
            return failed
        reason, hint = last_words(self._log(failed.party), code)
        return PartyFailed(failed.party, reason, hint=hint)

    def reload(self, processes: Processes) -> None:
        for name in processes.running():
            processes.signal(name, signal.SIGHUP)

    def end(self, processes: Processes) -> None:
        """Waits for the parties to end, then terminates the others."""
        deadline = time.monotonic() + _LINGER
        while processes.running() and time.monotonic() < deadline and not any(processes.codes.values()):
            processes.wait(0.1)
        for name in processes.running():
            processes.signal(name, signal.SIGTERM)

    def _identify(self, tree: dict[str, Any]) -> None:
        pins = temporary_identities(self._keys / "members", self._all)
        tree["federation"]["server"] = pins.pop("server")
        tree["federation"]["parties"] = pins
        tree["server"]["identity"] = str(self._keys / "members" / "server")
        for name in self._all:
            tree["parties"][name]["identity"] = str(self._keys / "members" / name)

    def _home(self, name: str) -> PartyFolder:
        return self._folder.party(name)

    def _log(self, name: str) -> Path:
        return self._home(name).answers_log
