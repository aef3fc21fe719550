"""`colonnade.simulate` and `colonnade.up`: runs that are started from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import InputError
from colonnade.common.runtime.permissions import private_files
from colonnade.common.runtime.torch_defaults import torch_defaults
from colonnade.runs import OnEvent, Run

if TYPE_CHECKING:
    from colonnade.launcher.configuration import ConfigLike
    from colonnade.launcher.watch import Ended

Tables = Mapping[str, Any]
"""Tables by member; `server` holds the labels. Each has `__arrow_c_stream__`: pandas, polars, pyarrow, DuckDB."""


def simulate(
    config: ConfigLike,
    tables: Tables | None = None,
    out: str | Path | None = None,
    *,
    sets: Sequence[str] = (),
    progress: bool = False,
    on_event: OnEvent | None = None,
) -> Run:
    """Runs a federation in this process on a virtual clock, as `colonnade simulate` does.

    Args:
        config: a YAML file's path, its content as a dict, or a `colonnade.Config`. Paths in a dict are relative to the
            working directory.
        tables: by member; such a member's section needs no `source`. Without a roster, their names are the roster.
        out: the run's folder; by default one under runs/.
        sets: KEY=VALUE, as for `--set`.
        progress: shows a line of progress.
        on_event: called with every event of the server.

    Raises:
        ConfigError: a key or a value is not allowed.
        DataError: a table cannot be used.
        TrainingDiverged: numbers are no longer finite; its `hint` has the command that goes back.
        ColonnadeError: as in a real run.
        KeyboardInterrupt: it was interrupted; `colonnade.load(folder).resume()` continues it.
    """
    from colonnade.launcher.configuration import GivenConfig  # noqa: PLC0415
    from colonnade.launcher.virtual import run_virtually  # noqa: PLC0415

    with torch_defaults(), private_files(), _listening(on_event, progress=progress) as listeners:
        folder, _ = run_virtually(GivenConfig.of(config, tables, sets), _path(out), listeners)
    return Run(folder)


def up(
    config: ConfigLike,
    tables: Tables | None = None,
    out: str | Path | None = None,
    *,
    sets: Sequence[str] = (),
    dashboard: bool | str = False,
    secure: bool = True,
    progress: bool = False,
    on_event: OnEvent | None = None,
) -> Run:
    """Runs a federation on this machine, every member a process of its own, as `colonnade up` does.

    Args:
        config, tables, out, sets, on_event: as for `simulate`.
        dashboard: serves the run's page during the run; True for a port on loopback, or HOST:PORT.
        secure: uses mutual TLS.
        progress: shows lines of progress.

    Raises:
        MemberFailed: a member's process has failed; its message and hint.
        ColonnadeError: the run could not be started.
        KeyboardInterrupt: it was interrupted; all processes have ended.
    """
    from colonnade.launcher.configuration import GivenConfig  # noqa: PLC0415
    from colonnade.launcher.federation import launch  # noqa: PLC0415
    from colonnade.launcher.watch import LaunchOptions  # noqa: PLC0415

    with torch_defaults(), private_files(), _screen(progress=progress) as screen:
        address = _ANY if dashboard is True else dashboard or ""
        options = LaunchOptions(secure, address, screen, _listeners(on_event))
        given = GivenConfig.of(config, tables, sets)
        return _finished(launch(lambda: given, _path(out), options))


def go_on(
    folder: Path, sets: Sequence[str], *, virtual: bool, progress: bool = False, on_event: OnEvent | None = None
) -> Run:
    """Resumes a run. See `Run.resume`."""
    if virtual:
        from colonnade.launcher.virtual import resume_virtually  # noqa: PLC0415

        with torch_defaults(), private_files(), _listening(on_event, progress=progress) as listeners:
            resume_virtually(folder, sets, listeners)
        return Run(folder)
    from colonnade.launcher.federation import relaunch  # noqa: PLC0415
    from colonnade.launcher.watch import LaunchOptions  # noqa: PLC0415

    with torch_defaults(), private_files(), _screen(progress=progress) as screen:
        return _finished(relaunch(folder, sets, LaunchOptions(screen=screen, listeners=_listeners(on_event))))


_ANY = "127.0.0.1:0"


def _finished(ended: Ended) -> Run:
    """The run, if it completed. Raises MemberFailed, KeyboardInterrupt."""
    if ended.interrupted:
        raise KeyboardInterrupt
    if ended.failure is not None:
        raise ended.failure
    return Run(ended.folder)


def _path(out: str | Path | None) -> Path | None:
    return Path(out) if out else None


def _listeners(on_event: OnEvent | None) -> tuple[OnEvent, ...]:
    if on_event is not None and not callable(on_event):
        raise InputError(f"on_event is a {type(on_event).__name__}", hint="give a function of one event, a dict")
    return () if on_event is None else (on_event,)


@contextmanager
def _listening(on_event: OnEvent | None, *, progress: bool) -> Iterator[tuple[Callable[[dict[str, Any]], None], ...]]:
    """The listeners of a simulation, including the line of progress."""
    if not progress:
        yield _listeners(on_event)
        return
    from colonnade.reports.console.progress import Progress  # noqa: PLC0415
    from colonnade.reports.console.screen import out  # noqa: PLC0415

    shown = Progress(out)
    try:
        yield (shown, *_listeners(on_event))
    finally:
        shown.close()


@contextmanager
def _screen(*, progress: bool) -> Iterator[Any]:
    """The console, or one that prints nothing."""
    from colonnade.reports.console.screen import Screen, out  # noqa: PLC0415

    yield out if progress else Screen(highlight=False, quiet=True)
