"""`colonnade up`: a whole federation on this machine, every member a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from colonnade.cli.launcher.processes import Processes, last_words
from colonnade.cli.launcher.scratch import scratch
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.reports.console.screen import INTERRUPTED, debugging, show_error
from colonnade.reports.console.screen import out as console

if TYPE_CHECKING:
    from colonnade.common.config.members import Config

_LINGER = 15.0  # seconds that parties have for their farewell once the server has ended
_NOTICE = 3.0  # seconds that the others have to notice that a member has failed
_HASTE = 0.5  # the same, before the run has begun: the others only wait


def up(
    file: Path | None,
    sets: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    *,
    insecure: bool,
    dashboard: str = "",
    ids: Path | None = None,
) -> None:
    """Runs a federation to its end and prints its summary.

    Args:
        dashboard: address of the dashboard; "" serves none.
        ids: CSV file with the ids to predict after the run, into predictions.csv in its folder; None for none.
    """
    launched = time.time()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes = Processes()  # it imports torch while we read the configuration
    try:
        from colonnade.cli.data.check import check_members, refuse_others  # noqa: PLC0415  # these import torch: the fork server is first
        from colonnade.cli.launcher.folder_lock import locked_folder  # noqa: PLC0415
        from colonnade.common.parsing.earlier_defaults import load_begun  # noqa: PLC0415
        from colonnade.common.parsing.file import load  # noqa: PLC0415

        file, base = _choose(file, resume)
        config = load(file, sets) if resume is None else load_begun(file, sets)
        check_members(config, file)
        if resume is not None:
            refuse_others(config, resume)
        _refuse_wrong(ids, config)
        _refuse_own(file, out)
        with (
            locked_folder(out, config.federation.id, resume, ".launcher.lock") as folder,
            scratch() as place,
            _shown(folder, dashboard),
        ):
            run = _Run(config, base, folder, place, launched, secure=not insecure, resumed=resume is not None)
            code = run.go(processes)
    finally:
        processes.close()
    if ids is not None and code == 0:
        from colonnade.cli.run.predict import predict  # noqa: PLC0415
        from colonnade.server.prediction.terms import PredictionTerms  # noqa: PLC0415

        predict(folder, ids, RunFolder(folder).predictions, "", None, PredictionTerms(secure=not insecure))
    raise SystemExit(code)


def _refuse_wrong(ids: Path | None, config: Config) -> None:
    """Looks through a file of ids before anything is trained. Raises DataError."""
    from colonnade.cli.run.prediction_files import PredictionIds  # noqa: PLC0415

    if ids is not None and config.server is not None:
        PredictionIds(ids, like=getattr(config.server.labels, "key", None) or "").count()


def _refuse_own(file: Path, out: Path | None) -> None:
    """Sees that a run leaves its configuration beside the one that it was started with. Raises InputError."""
    from colonnade.common.errors import InputError  # noqa: PLC0415

    if out is None:
        return
    run = RunFolder(out.resolve())
    if file.resolve() in (run.config, run.server_config):
        raise InputError(f"--out {out}: the run would overwrite {file}", hint="choose another folder for the run")


@contextlib.contextmanager
def _shown(folder: Path, dashboard: str) -> Iterator[None]:
    """Serves the run's page meanwhile, and leaves it as a file."""
    if not dashboard:
        yield
        return
    from colonnade.reports.dashboard.live import Dashboard  # noqa: PLC0415

    served = Dashboard(folder, dashboard)
    try:
        yield
    finally:
        served.close()
    if RunFolder(folder).events.exists():
        from colonnade.cli.read.report import report  # noqa: PLC0415

        report([folder], None)


def _choose(file: Path | None, resume: Path | None) -> tuple[Path, Path]:
    """The configuration, and the folder that paths in it are relative to."""
    from colonnade.cli.launcher.demo import demo_file  # noqa: PLC0415
    from colonnade.common.errors import InputError  # noqa: PLC0415

    if resume is None:
        file = file or demo_file()
        return file, file.parent.resolve()
    if file is not None:
        raise InputError(f"{file} and --resume: a run goes on with its own configuration", hint="leave the file away")
    run = RunFolder(resume)
    run.refuse_newer()
    if (base := run.base()) is None:
        hint = "give --resume the folder that `up` printed, or resume each member with `server` and `client`"
        raise InputError(f"{resume} holds no run that `up` has begun", hint=hint)
    return run.config, base


class _Run:
    """One run: its folder, its members' files, and watching them.

    Args:
        config: of the whole federation.
        base: the folder that paths in it are relative to.
        folder: the run's.
        scratch: folder of throw-away identities and temporary files.
        launched: when `up` began, seconds since 1970.
        secure: uses TLS.
        resumed: the folder holds a run to resume.
    """

    def __init__(
        self, config: Config, base: Path, folder: Path, scratch: Path, launched: float, *, secure: bool, resumed: bool
    ) -> None:
        from colonnade.cli.launcher.restarts import Restarts  # noqa: PLC0415
        from colonnade.reports.console.progress import Progress  # noqa: PLC0415

        self._config, self._base, self._folder, self._launched = config, base, RunFolder(folder), launched
        self._scratch, self._secure = scratch, secure
        self._names = config.federation.names
        self._progress = Progress(console)
        self._events = self._follow(self._folder.events, _size(self._folder.events))
        self._address = scratch / "address"
        self._begun = self._went_on = False
        self._resumed = resumed
        self._files: dict[Path, str] = {}
        self._there = {path.name for path in folder.iterdir()}
        self._restarts = Restarts(config.launch)
        self._sent_away: set[str] = set()  # members that this process ended

    def go(self, processes: Processes) -> int:
        """Starts everyone, watches until all have ended, and returns the exit code."""
        from colonnade.reports.console.summary import show_summary  # noqa: PLC0415

        interrupted = False
        self._files = self._make_files()
        if not self._resumed:
            self._keep()
        self._start(processes)
        try:
            self._watch(processes)
        except KeyboardInterrupt:
            interrupted = True
            console.print("stopping ...", style="yellow")
            self._stop(processes)
        self._take_events()
        self._progress.close()
        code = INTERRUPTED if interrupted else self._report(processes.codes)
        if code and (self._begun or self._resumed):
            console.print(f"  go on with it: colonnade up --resume {self._folder.path}", markup=False, soft_wrap=True)
        if self._went_on or not self._resumed:
            show_summary(console, self._folder.path)
        if not self._begun and not self._resumed and not debugging():
            self._clear()
        return code

    def _clear(self) -> None:
        """Removes everything that was not in the folder before the run."""
        for path in self._folder.path.iterdir():
            if path.name in self._there:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _make_files(self) -> dict[Path, str]:
        """Files to store with the run. Every member's file holds the federation and its own section, and nothing else.

        Members read theirs from the scratch folder: a resumed run keeps its files until there is another round.
        """
        tree = self._config.model_dump(mode="json", exclude_none=True)
        kept = {
            self._folder.launch: json.dumps({"base": str(self._base)}),
            self._folder.config: yaml.safe_dump(tree, sort_keys=False),
        }
        if self._secure:
            self._make_identities(tree, self._scratch / "members")
        for name in ("server", *self._names):
            if name == "server":
                own, place = {"server": tree["server"]}, self._folder.server_config
            else:
                own, place = {"parties": {name: tree["parties"][name]}}, self._folder.party(name).config
            text = yaml.safe_dump({"federation": tree["federation"], **own}, sort_keys=False)
            self._file(name).write_text(text)
            kept[place] = text
        return kept

    def _make_identities(self, tree: dict[str, Any], keys: Path) -> None:
        from colonnade.common.crypto.pki.federation import make_federation  # noqa: PLC0415

        pins = make_federation(keys, self._names)
        tree["federation"]["server"] = pins.pop("server")
        tree["federation"]["parties"] = pins
        tree["server"]["identity"] = str(keys / "server")
        for name in self._names:
            tree["parties"][name]["identity"] = str(keys / name)

    def _keep(self) -> None:
        """Writes the files once, each atomically."""
        for path, text in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, text)
        self._files = {}

    def _start(self, processes: Processes) -> None:
        for name in ("server", *self._names):
            self._start_one(processes, name)

    def _start_one(self, processes: Processes, name: str) -> None:
        home, file = self._folder.member(name), self._file(name)
        home.make()
        how = "--resume" if home.begun else "--out"
        argv = ["server" if name == "server" else "client", str(file), how, str(home.path), "--base", str(self._base)]
        argv += [] if self._secure else ["--insecure"]
        argv += ["--launched", str(self._launched)] if name == "server" else ["--server-file", str(self._address)]
        threads = max(1, (os.cpu_count() or 1) // (len(self._names) + 1))
        processes.start(name, argv, self._log(name), threads=threads)

    def _watch(self, processes: Processes) -> None:
        """Waits until the server has ended or a member has failed, then gives the others time to end."""
        while not self._over(processes):
            processes.wait(0.1)
            self._take_events()
            self._restart(processes)
        patience = _LINGER
        if any(processes.codes.values()):
            patience = _NOTICE if self._begun else _HASTE
        self._linger(processes, patience)

    def _over(self, processes: Processes) -> bool:
        ended = {name: code for name, code in processes.codes.items() if not self._restarts.hopeful(name, code)}
        return "server" in ended or any(ended.values())

    def _restart(self, processes: Processes) -> None:
        """Restarts killed members after their pause."""
        for name, code in list(processes.codes.items()):
            if not self._restarts.hopeful(name, code):
                continue
            if self._restarts.noticed(name):
                killer = signal.Signals(-code).name
                console.print(f"{name} was killed by {killer}, it is started again", style="yellow", markup=False)
            if self._restarts.due(name):
                if name == "server":
                    self._address.unlink(missing_ok=True)  # it will listen somewhere else
                self._start_one(processes, name)

    def _stop(self, processes: Processes) -> None:
        """Stops the server first, so that its summary says `interrupted`, not that its parties left."""
        deadline = time.monotonic() + _LINGER
        processes.signal("server", signal.SIGTERM)
        while "server" in processes.running() and time.monotonic() < deadline:
            processes.wait(0.1)
        self._linger(processes, 0.0)

    def _linger(self, processes: Processes, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for number in (signal.SIGTERM, signal.SIGKILL):
            while processes.running() and time.monotonic() < deadline:
                processes.wait(0.1)
                self._take_events()
            for name in processes.running():
                self._sent_away.add(name)
                processes.signal(name, number)
            deadline = time.monotonic() + 3.0
        while processes.running() and time.monotonic() < deadline:
            processes.wait(0.1)

    def _take_events(self) -> None:
        from colonnade.common.observability.telemetry import advances  # noqa: PLC0415

        for event in self._events:
            if event is None:
                return
            if event["kind"] == "listening":
                _replace(self._address, event["address"])
            self._begun = self._begun or event["kind"] == "begin"
            if advances(event):
                self._went_on = True
                self._keep()
            self._progress(event)

    def _report(self, codes: dict[str, int]) -> int:
        """Prints the errors, the member that caused them first."""
        # One that we ended before it could listen to signals was killed, and by us: nobody's fault.
        codes = {name: INTERRUPTED if code < 0 and name in self._sent_away else code for name, code in codes.items()}
        failed = {name: code for name, code in codes.items() if code != 0}
        if not failed or codes.get("server") == 0:  # who ended badly after the end has lost nothing
            return 0
        # Exit code 3 says that somebody else was at fault, 130 that we ended it, a negative one that it was killed.
        ranked = sorted(failed, key=lambda name: (failed[name] == INTERRUPTED, failed[name] == 3, failed[name] > 0))
        root = ranked[0]
        message, hint = last_words(self._log(root), failed[root])
        show_error(message, hint, who=root)
        for name in (name for name in ranked[1:] if failed[name] != INTERRUPTED):
            console.print(f"  then {name}: {last_words(self._log(name), failed[name])[0]}", style="dim", markup=False)
        if self._begun:
            console.print(f"  log: {self._log(root)}", style="dim", markup=False)
        return failed[root] if failed[root] > 0 else 1

    def _file(self, name: str) -> Path:
        return self._scratch / f"{name}.yaml"

    def _log(self, name: str) -> Path:
        return self._folder.server_log if name == "server" else self._folder.party(name).log

    @staticmethod
    def _follow(path: Path, skip: int) -> Iterator[dict[str, Any] | None]:
        """The events of a file as they are written; None whenever there is no whole line left.

        `skip` bytes at its beginning are of an earlier start.
        """
        rest = ""
        while not path.exists():
            yield None
        with path.open() as file:
            file.seek(skip)
            while True:
                rest += file.read()
                *lines, rest = rest.split("\n")
                for line in lines:
                    with contextlib.suppress(ValueError):  # cut short: its writer was killed
                        yield json.loads(line)
                yield None


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
