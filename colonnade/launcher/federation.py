"""A whole federation on this machine, every member a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from colonnade.common.config.members import Config
from colonnade.common.errors import MemberFailed
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.configuration import GivenConfig, naming_tables
from colonnade.launcher.folder_lock import locked_folder
from colonnade.launcher.processes import Processes
from colonnade.launcher.readiness import check_members, refuse_others
from colonnade.launcher.scratch import scratch
from colonnade.launcher.watch import Ended, Launch, LaunchOptions


def launch(
    processes: Processes, given: GivenConfig, out: Path | None = None, options: LaunchOptions | None = None
) -> Ended:
    """Runs a federation to its end. `out` is the run's folder; None chooses one under runs/."""
    config = given.check()
    given.refuse_own(out)
    with _prepared(processes, config, given.base, options or LaunchOptions(), out=out, given=given) as run:
        run.take(given)
        ended = run.go(processes)
        if (failure := ended.failure) is not None:
            reason, hint = (given.named(text, ended.folder) for text in (failure.reason, failure.hint))
            failure = MemberFailed(failure.member, reason, failure.exit_code, hint=hint)
        return replace(ended, failure=failure)


def relaunch(
    processes: Processes, resume: Path, sets: Sequence[str] = (), options: LaunchOptions | None = None
) -> Ended:
    """Resumes the run in a folder, in its own configuration except for `sets`."""
    run = RunFolder(resume)
    run.refuse_unreadable()
    base = run.begun_base(
        "give --resume the folder that `up` printed, or resume each member with `server` and `client`"
    )
    config = load_begun(run.config, tuple(sets))
    check_members(config, str(run.config))
    refuse_others(config, resume)
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
        naming_tables(given, folder),
        scratch() as place,
        _shown(folder, options),
    ):
        yield Launch(config, base, folder, place, processes.begun, options=options, resumed=resume is not None)


def _shown(folder: Path, options: LaunchOptions) -> contextlib.AbstractContextManager[None]:
    if not options.dashboard:
        return contextlib.nullcontext()
    from colonnade.reports.dashboard.site import shown  # noqa: PLC0415  # members start sooner without a web server

    return shown(folder, options.dashboard, options.screen)
