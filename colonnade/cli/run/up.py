"""`colonnade up`: a whole federation on this machine, one process per member."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NoReturn

from colonnade.common.config.chaos import read_chaos
from colonnade.common.errors import InputError, TrainingDiverged
from colonnade.common.parsing.file import load
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.demo import demo_file
from colonnade.launcher.federation import Ended, LaunchOptions, launch, relaunch
from colonnade.launcher.prediction_files import PredictionIds
from colonnade.launcher.processes import Processes
from colonnade.reports.console.screen import INTERRUPTED, show_error
from colonnade.reports.console.screen import out as console
from colonnade.reports.console.summary import near, show_summary
from colonnade.server.prediction.terms import PredictionTerms


def up(
    processes: Processes,
    file: Path | None,
    sets: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    *,
    chaos: tuple[str, ...] = (),
    insecure: bool,
    dashboard: str = "",
    ids: Path | None = None,
) -> Ended:
    """Runs a federation to its end.

    Args:
        dashboard: address of the dashboard; "" serves none.
        ids: CSV file with ids to predict after the run, checked before it.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sets = (*sets, *read_chaos(chaos))
    options = LaunchOptions(secure=not insecure, dashboard=dashboard)
    if resume is None:
        file = file or demo_file()
        given = GivenConfig.of(file, sets=sets)
        if ids is not None:
            _refuse_wrong(ids, file, sets)
        return launch(processes, given, out, options)
    if file is not None:
        raise InputError(f"{file} and --resume: a run goes on with its own configuration", hint="leave the file away")
    if out is not None:
        raise InputError("--out and --resume: a run goes on in its own folder", hint="leave --out away")
    if ids is not None:
        _refuse_wrong(ids, RunFolder(resume).config)
    return relaunch(processes, resume, sets, options)


def end(ended: Ended, ids: Path | None, *, insecure: bool) -> NoReturn:
    """Prints the summary of a run and exits; for a completed run first predicts the ids, into predictions.csv."""
    code = show(ended)
    if ids is not None and code == 0:
        from colonnade.cli.run.predict import predict  # noqa: PLC0415  # scipy

        terms = PredictionTerms(secure=not insecure)
        predict(ended.folder, ids, RunFolder(ended.folder).predictions, "", None, terms)
    raise SystemExit(code)


def _refuse_wrong(ids: Path, file: Path, sets: tuple[str, ...] = ()) -> None:
    """Checks a file of ids before training starts."""
    if (server := load(file, sets, begun=True).server) is not None:
        PredictionIds(ids, like=getattr(server.labels, "key", None)).count()


def show(ended: Ended) -> int:
    code = INTERRUPTED if ended.interrupted else 0
    if (failure := ended.failure) is not None:
        code = failure.exit_code
        show_error(failure.reason, failure.hint, who=failure.member)
        for line in ended.others:
            console.say(f"  then {line}", "dim", indent=7)
        if ended.log is not None:
            console.point("  log", near(ended.log), "dim")
    if code and ended.begun and code != TrainingDiverged.exit_code:  # its hint says from which round, and how
        console.point("  go on with it", f"colonnade up --resume {near(ended.folder)}")
    if ended.advanced:
        show_summary(console, ended.folder)
    return code
