"""`colonnade up`: a whole federation on this machine, one process per member."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.federation import launch, relaunch
from colonnade.launcher.watch import Ended, LaunchOptions
from colonnade.reports.console.screen import INTERRUPTED, show_error
from colonnade.reports.console.screen import out as console

if TYPE_CHECKING:
    from colonnade.launcher.configuration import GivenConfig


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
        ids: CSV file with ids to predict after the run, into predictions.csv in its folder.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = LaunchOptions(secure=not insecure, dashboard=dashboard)
    if resume is None:
        ended = launch(partial(_given, file, sets, ids), out, options)
    else:
        _refuse_both(file, out)
        if ids is not None:
            _refuse_wrong(ids, RunFolder(resume).config)
        ended = relaunch(resume, sets, options)
    code = show(ended)
    if ids is not None and code == 0:
        from colonnade.cli.run.predict import predict  # noqa: PLC0415
        from colonnade.server.prediction.terms import PredictionTerms  # noqa: PLC0415

        terms = PredictionTerms(secure=not insecure)
        predict(ended.folder, ids, RunFolder(ended.folder).predictions, "", None, terms)
    raise SystemExit(code)


def _given(file: Path | None, sets: tuple[str, ...], ids: Path | None) -> GivenConfig:
    from colonnade.launcher.configuration import GivenConfig  # noqa: PLC0415
    from colonnade.launcher.demo import demo_file  # noqa: PLC0415

    file = file or demo_file()
    given = GivenConfig.of(file, sets=sets)
    if ids is not None:
        _refuse_wrong(ids, file, sets)
    return given


def _refuse_both(file: Path | None, out: Path | None) -> None:
    """Refuses arguments that a resumed run does not take."""
    from colonnade.common.errors import InputError  # noqa: PLC0415

    if file is not None:
        raise InputError(f"{file} and --resume: a run goes on with its own configuration", hint="leave the file away")
    if out is not None:
        raise InputError("--out and --resume: a run goes on in its own folder", hint="leave --out away")


def _refuse_wrong(ids: Path, file: Path, sets: tuple[str, ...] = ()) -> None:
    """Checks a file of ids before training starts."""
    from colonnade.common.parsing.file import load  # noqa: PLC0415
    from colonnade.launcher.prediction_files import PredictionIds  # noqa: PLC0415

    if (server := load(file, sets, begun=True).server) is not None:
        PredictionIds(ids, like=getattr(server.labels, "key", None) or "").count()


def show(ended: Ended) -> int:
    from colonnade.common.errors import TrainingDiverged  # noqa: PLC0415
    from colonnade.reports.console.summary import show_summary  # noqa: PLC0415

    code = INTERRUPTED if ended.interrupted else 0
    if (failure := ended.failure) is not None:
        code = failure.exit_code
        show_error(failure.reason, failure.hint, who=failure.member)
        for line in ended.others:
            console.print(f"  then {line}", style="dim", markup=False)
        if ended.log is not None:
            console.print(f"  log: {ended.log}", style="dim", markup=False)
    if code and ended.begun and code != TrainingDiverged.exit_code:  # its hint says from which round, and how
        console.print(f"  go on with it: colonnade up --resume {ended.folder}", markup=False, soft_wrap=True)
    if ended.advanced:
        show_summary(console, ended.folder)
    return code
