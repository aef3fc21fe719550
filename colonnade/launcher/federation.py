"""A whole federation on this machine, every member a process: their files, their start, their end."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colonnade.common.config.members import Config, LaunchConfig
from colonnade.common.config.remedy import command
from colonnade.common.errors import MemberFailed, PeerError
from colonnade.common.observability.telemetry import Listener, advances
from colonnade.common.parsing.dump import config_files, config_tree, files_beside, member_text
from colonnade.common.run.event_loop import interrupts_raised
from colonnade.common.run.files import write_durably
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.configuration import GivenConfig, naming_tables, with_names
from colonnade.launcher.folder_lock import locked_folder, remove_new
from colonnade.launcher.processes import Processes, last_words, thread_share
from colonnade.launcher.readiness import load_resumed, refuse_tables
from colonnade.launcher.scratch import scratch, temporary_identities
from colonnade.reports.console.progress import Progress
from colonnade.reports.console.screen import INTERRUPTED, Screen, debugging
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted

_LINGER = 15.0  # seconds that parties have for their farewell once the server has ended
_NOTICE = 3.0  # seconds for the others to notice that a member has failed
_HELD = 2.0  # seconds in which a party that has left may say why: its own error comes first
HASTE = 0.5  # the same, before the run has begun: the others only wait


@dataclass(frozen=True)
class LaunchOptions:
    """Settings of one start that are not in the configuration.

    Args:
        dashboard: address of the dashboard; "" serves none.
    """

    secure: bool = True
    dashboard: str = ""
    screen: Screen = console
    listeners: Sequence[Listener] = ()


@dataclass(frozen=True)
class Ended:
    """End of a run.

    Args:
        folder: the run's; removed if the run never began.
        failure: the causing member's; None if there was none.
        others: members that failed afterwards, with their last words.
        begun: True if there is something to resume.
        advanced: False if the run was resumed and this start has completed no round.
    """

    folder: Path
    failure: MemberFailed | None
    others: tuple[str, ...] = ()
    log: Path | None = None
    interrupted: bool = False
    begun: bool = False
    advanced: bool = False


class Launch:
    """One run: its folder, its members' files, and watching them.

    Args:
        launched: start time, seconds since 1970.
        resumed: True if the folder holds a run to resume.
    """

    def __init__(
        self,
        config: Config,
        base: Path,
        folder: Path,
        scratch: Path,
        launched: float,
        *,
        options: LaunchOptions,
        resumed: bool,
    ) -> None:
        self._config, self._base, self._folder, self._launched = config, base, RunFolder(folder), launched
        self._scratch, self._secure = scratch, options.secure
        self._screen, self._listeners = options.screen, options.listeners
        self._names = config.federation.names
        self._progress = Progress(options.screen, f"starting the server and {counted(len(self._names), 'party')}")
        events = self._folder.events
        self._events = self._follow(events, events.stat().st_size if events.exists() else 0)
        self._address = scratch / "address"
        self._begun = self._went_on = False
        self._diverged: dict[str, Any] | None = None  # event of a divergence that ends the run
        self._resumed = resumed
        self._files: dict[Path, str] = {}
        self._there = set(folder.rglob("*"))
        self._restarts = Restarts(config.launch)
        self._left: dict[str, tuple[float, list[dict[str, Any]]]] = {}  # parties that failed or left: when, and events
        self.sent_away: set[str] = set()  # members that this process ended

    def take(self, given: GivenConfig) -> None:
        try:
            self._config = given.put(self._folder.path)
            refuse_tables(self._config, given.base, self._folder.path)
        except BaseException:
            self._clear()
            raise

    def go(self, processes: Processes) -> Ended:
        """Starts all members and watches them until they have ended."""
        interrupted = False
        self._files = self._make_files()
        if not self._resumed:
            self._keep()
        try:
            with interrupts_raised():
                self._start(processes)
                self._watch(processes)
        except KeyboardInterrupt:
            interrupted = True
            self._screen.say("stopping ...", "yellow")
            self._stop(processes)
        except BaseException:  # of a listener
            self._listeners = ()
            self._stop(processes)
            self._progress.close()
            if not self._begun and not self._resumed:
                self._clear()
            raise
        self._take_events()
        ended = self._end(processes.codes, interrupted=interrupted)
        if ended.failure is None:
            self.show_left()  # otherwise the members' errors follow, the cause first
        self._progress.close()
        if not self._begun and not self._resumed and not debugging():
            self._clear()
        return ended

    def _clear(self) -> None:
        remove_new(self._folder.path, self._there)

    def _make_files(self) -> dict[Path, str]:
        """Files to store with the run. Every member's file holds the federation and its own section, and nothing else.

        Members read theirs from the scratch folder: a resumed run keeps its old files until it completes another round.
        """
        tree = config_tree(self._config)
        kept = {
            self._folder.launch: json.dumps(self._folder.place(self._base, files_beside(tree, self._base))),
            **config_files(tree, self._folder),
        }
        if self._secure:
            temporary_identities(self._scratch / "members", self._names, tree)
            names = (self._folder.server_config, *(self._folder.party(name).config for name in self._names))
            kept |= {place: text for place, text in config_files(tree, self._folder).items() if place in names}
        for name in ("server", *self._names):
            self._file(name).write_text(member_text(tree, name), encoding="utf-8")
        return kept

    def _keep(self) -> None:
        for path, text in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, text.encode())
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
        processes.start(name, argv, self._log(name), threads=thread_share(len(self._names) + 1))

    def _watch(self, processes: Processes) -> None:
        while not self._over(processes):
            processes.wait(0.1)
            self._take_events()
            self._restart(processes)
        patience = _LINGER
        if any(processes.codes.values()):
            told = PeerError.exit_code in processes.codes.values()  # the one at fault ends by itself, and says why
            patience = _NOTICE if self._begun or told else HASTE
        self._linger(processes, patience)

    def _over(self, processes: Processes) -> bool:
        ended = {name: code for name, code in processes.codes.items() if not self._restarts.hopeful(name, code)}
        return "server" in ended or any(ended.values())

    def _restart(self, processes: Processes) -> None:
        for name, code in list(processes.codes.items()):
            if not self._restarts.hopeful(name, code):
                continue
            if self._restarts.noticed(name):
                killer = signal.Signals(-code).name
                self._screen.say(f"{name} was killed by {killer}, it is started again", "yellow")
            if self._restarts.due(name):
                if name == "server":
                    self._address.unlink(missing_ok=True)  # the server will listen elsewhere
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
                self.sent_away.add(name)
                processes.signal(name, number)
            deadline = time.monotonic() + 3.0
        while processes.running() and time.monotonic() < deadline:
            processes.wait(0.1)

    def _take_events(self) -> None:
        for event in self._events:
            if event is None:
                break
            if event["kind"] == "listening":
                write_durably(self._address, event["address"].encode())
            self._begun = self._begun or event["kind"] == "begin"
            if event["kind"] in ("begin", "back_off", "diverged"):
                self._diverged = event if event["kind"] == "diverged" else None
            if advances(event):
                self._went_on = True
                self._keep()
            self.show(event)
            for listener in self._listeners:
                listener(event)
        now = time.monotonic()
        for party in [name for name, (since, _) in self._left.items() if now - since > _HELD]:
            self._show_losses(party)

    def show(self, event: dict[str, Any]) -> None:
        """Shows an event; a party's failure or departure only if the run does not end with the members' errors."""
        party = str(event.get("party"))
        if event["kind"] in ("leave", "failed") and party != "server":
            self._left.setdefault(party, (time.monotonic(), []))[1].append(event)
            return
        if event["kind"] in ("join", "rejoin"):
            self._show_losses(party)
        self._progress(event)

    def _show_losses(self, party: str) -> None:
        for event in self._left.pop(party, (0.0, []))[1]:
            self._progress(event)

    def show_left(self) -> None:
        """Shows departures that were not shown yet, except those of members that we ended."""
        for party in list(self._left):
            if party not in self.sent_away:
                self._show_losses(party)
        self._left.clear()

    def _end(self, codes: dict[str, int], *, interrupted: bool) -> Ended:
        """Ranks the members' errors, the cause first."""

        def ended(failure: MemberFailed | None, others: tuple[str, ...] = (), log: Path | None = None) -> Ended:
            return Ended(
                self._folder.path, failure, others, log, interrupted,
                begun=self._begun or self._resumed, advanced=self._went_on or not self._resumed,
            )  # fmt: skip

        if interrupted:
            return ended(None)
        # A member that we ended before it could handle signals was killed by us, and is not at fault.
        codes = {name: INTERRUPTED if code < 0 and name in self.sent_away else code for name, code in codes.items()}
        failed = {name: code for name, code in codes.items() if code != 0}
        if not failed or codes.get("server") == 0:  # a failure after the server's regular end loses nothing
            return ended(None)
        # Exit code 3: another member was at fault; 130: we ended it; negative: it was killed.
        ranked = sorted(failed, key=lambda name: (failed[name] == INTERRUPTED, failed[name] == 3, failed[name] > 0))
        root = ranked[0]
        if root == "server" and self._diverged is not None:
            return ended(self._divergence(self._diverged, failed[root]), (), self._log(root))
        message, hint = last_words(self._log(root), failed[root])
        others = tuple(
            f"{name}: {last_words(self._log(name), failed[name])[0].removeprefix(f'{name}: ')}"
            for name in ranked[1:]
            if failed[name] != INTERRUPTED
        )
        code = failed[root] if failed[root] > 0 else 1
        return ended(MemberFailed(root, message, code, hint=hint), others, self._log(root) if self._begun else None)

    def _divergence(self, event: dict[str, Any], code: int) -> MemberFailed:
        """The failure of a diverged run, at the member where growth began."""
        hint = command(self._config, event["members"], event["sound"], self._folder.path, "up")
        return MemberFailed(event["party"], event["reason"], code, hint=hint)

    def _file(self, name: str) -> Path:
        return self._scratch / f"{name}.yaml"

    def _log(self, name: str) -> Path:
        return self._folder.server_log if name == "server" else self._folder.party(name).log

    @staticmethod
    def _follow(path: Path, skip: int) -> Iterator[dict[str, Any] | None]:
        """The events of a file after `skip` bytes, as they are written; None whenever no complete line is left."""
        rest = ""
        while not path.exists():
            yield None
        with path.open(encoding="utf-8") as file:
            file.seek(skip)
            while True:
                rest += file.read()
                *lines, rest = rest.split("\n")
                for line in lines:
                    with contextlib.suppress(ValueError):  # cut short: its writer was killed
                        yield json.loads(line)
                yield None


class Restarts:
    def __init__(self, config: LaunchConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._used: Counter[str] = Counter()
        self._at: dict[str, float] = {}

    def hopeful(self, name: str, code: int) -> bool:
        """True if a member that ended with this code will be restarted.

        Only a killed member (a negative code) is: a member that exits by itself would fail again.
        """
        return code < 0 and (name in self._at or self._used[name] < self._config.restarts)

    def noticed(self, name: str) -> bool:
        """Schedules the restart of a member; True the first time."""
        if name in self._at:
            return False
        self._at[name] = self._clock() + self._config.backoff * 2 ** self._used[name]
        self._used[name] += 1
        return True

    def due(self, name: str) -> bool:
        """True, once, when it is time to restart the member."""
        if self._clock() < self._at[name]:
            return False
        del self._at[name]
        return True


def launch(
    processes: Processes, given: GivenConfig, out: Path | None = None, options: LaunchOptions | None = None
) -> Ended:
    """Runs a federation to its end. `out` is the run's folder; None chooses one under runs/.

    Returns however a started run ends; raises only if it cannot start.
    """
    config = given.check()
    given.refuse_own(out)
    with _prepared(processes, config, given.base, options or LaunchOptions(), out=out, given=given) as run:
        run.take(given)
        ended = run.go(processes)
        if (failure := ended.failure) is not None:
            places = given.places(ended.folder)
            reason, hint = (with_names(text, places) for text in (failure.reason, failure.hint))
            failure = MemberFailed(failure.member, reason, failure.exit_code, hint=hint)
        return replace(ended, failure=failure)


def relaunch(
    processes: Processes, resume: Path, sets: Sequence[str] = (), options: LaunchOptions | None = None
) -> Ended:
    """Resumes the run in a folder, in its own configuration except for `sets`."""
    otherwise = "give --resume the folder that `up` printed, or resume each member with `server` and `client`"
    config, base = load_resumed(resume, sets, otherwise)
    with _prepared(processes, config, base, options or LaunchOptions(), resume=resume) as prepared:
        return prepared.go(processes)


@contextlib.contextmanager
def _prepared(
    processes: Processes,
    config: Config,
    base: Path,
    options: LaunchOptions,
    *,
    out: Path | None = None,
    given: GivenConfig | None = None,
    resume: Path | None = None,
) -> Iterator[Launch]:
    """The run in its locked folder, with a scratch folder and the dashboard."""
    with (
        locked_folder(out, config.federation.id, resume, ".launcher.lock") as folder,
        naming_tables({} if given is None else given.places(folder)),
        scratch() as place,
        _shown(folder, options),
    ):
        yield Launch(config, base, folder, place, processes.begun, options=options, resumed=resume is not None)


def _shown(folder: Path, options: LaunchOptions) -> contextlib.AbstractContextManager[None]:
    if not options.dashboard:
        return contextlib.nullcontext()
    from colonnade.reports.dashboard import shown  # noqa: PLC0415  # members start sooner without a web server

    return shown(folder, options.dashboard, options.screen)
