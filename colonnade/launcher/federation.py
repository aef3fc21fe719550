"""A whole federation on this machine, every member a process of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.processes import Processes
from colonnade.launcher.scratch import scratch
from colonnade.launcher.watch import Ended, Launch, LaunchOptions

if TYPE_CHECKING:
    from rich.console import Console

    from colonnade.launcher.configuration import GivenConfig


def launch(given: Callable[[], GivenConfig], out: Path | None = None, options: LaunchOptions | None = None) -> Ended:
    """Runs a federation to its end.

    Args:
        given: reads the configuration; called while the fork server is importing torch.
        out: the run's folder; None chooses one under runs/.
    """
    return _launch(given, out, None, options or LaunchOptions())


def relaunch(resume: Path, sets: Sequence[str] = (), options: LaunchOptions | None = None) -> Ended:
    """Resumes the run in a folder, in its own configuration except for `sets`."""
    return _launch(None, None, resume, options or LaunchOptions(), tuple(sets))


def _launch(
    given: Callable[[], GivenConfig] | None,
    out: Path | None,
    resume: Path | None,
    options: LaunchOptions,
    sets: tuple[str, ...] = (),
) -> Ended:
    launched = time.time()
    processes = Processes()  # it imports torch while we read the configuration
    try:
        from colonnade.common.parsing.earlier_defaults import load_begun  # noqa: PLC0415  # these import torch
        from colonnade.launcher.configuration import naming_tables  # noqa: PLC0415
        from colonnade.launcher.folder_lock import locked_folder  # noqa: PLC0415
        from colonnade.launcher.readiness import check_members, refuse_others  # noqa: PLC0415

        read = None if given is None else given()
        if resume is not None:
            base = _resumed_base(resume)
            config = load_begun(RunFolder(resume).config, sets)
            check_members(config, str(RunFolder(resume).config))
            refuse_others(config, resume)
        else:
            assert read is not None  # either `given` or `resume` is set
            base, config = read.base, read.check()
            read.refuse_own(out)
        with (
            locked_folder(out, config.federation.id, resume, ".launcher.lock") as folder,
            naming_tables(read, folder),
            scratch() as place,
            _shown(folder, options.dashboard, options.screen),
        ):
            run = Launch(config, base, folder, place, launched, options=options, resumed=resume is not None)
            if read is not None:
                run.take(read)
            return _with_names(run.go(processes), read)
    finally:
        processes.close()


def _with_names(ended: Ended, given: GivenConfig | None) -> Ended:
    if given is None or (failure := ended.failure) is None:
        return ended
    from colonnade.common.errors import MemberFailed  # noqa: PLC0415

    reason, hint = (given.named(text, ended.folder) for text in (failure.reason, failure.hint))
    return replace(ended, failure=MemberFailed(failure.member, reason, failure.exit_code, hint=hint))


@contextlib.contextmanager
def _shown(folder: Path, dashboard: str, screen: Console) -> Iterator[None]:
    if not dashboard:
        yield
        return
    from colonnade.reports.dashboard.site import Dashboard  # noqa: PLC0415
    from colonnade.reports.records.run import read_run  # noqa: PLC0415
    from colonnade.reports.run_page.page import write_page  # noqa: PLC0415

    served = Dashboard(folder, dashboard)
    try:
        yield
    finally:
        served.close()
    if RunFolder(folder).events.exists():
        page = write_page([read_run(folder)])
        screen.print(f"page: {page}", markup=False, soft_wrap=True)


def _resumed_base(resume: Path) -> Path:
    """The folder that paths in a resumed run's configuration are relative to. Raises InputError."""
    from colonnade.common.errors import InputError  # noqa: PLC0415

    run = RunFolder(resume)
    run.refuse_unreadable()
    if (base := run.base()) is None:
        hint = "give --resume the folder that `up` printed, or resume each member with `server` and `client`"
        raise InputError(f"{resume} holds no run that `up` has begun", hint=hint)
    return base
