"""`colonnade simulate`: a whole federation on the virtual clock, in this process."""

from __future__ import annotations

import time
from pathlib import Path

from colonnade.common.config.chaos import read_chaos
from colonnade.common.errors import InputError
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.virtual import resume_virtually, run_virtually
from colonnade.reports.console.progress import Progress, megabytes
from colonnade.reports.console.screen import INTERRUPTED
from colonnade.reports.console.screen import out as console
from colonnade.reports.console.summary import near, show_summary


def simulate(
    file: Path | None,
    sets: tuple[str, ...],
    out: Path | None,
    resume: Path | None = None,
    *,
    chaos: tuple[str, ...] = (),
) -> None:
    """Simulates a federation to its end. `chaos`: as for `--chaos`."""
    begin, sets = time.perf_counter(), (*sets, *read_chaos(chaos))
    shown = Progress(console, "reading the data")
    try:
        if file is not None and resume is None:
            folder, outcome = run_virtually(GivenConfig.of(file, sets=sets), out, (shown,))
        elif resume is not None and file is None and out is None:
            folder, outcome = resume_virtually(resume, sets, (shown,))
        else:
            raise InputError("expected a configuration, or --resume and the folder of a run", hint="give one of them")
    except KeyboardInterrupt as interrupted:
        for run in interrupted.args:
            console.point("go on with it", f"colonnade simulate --resume {near(run)}")
        raise SystemExit(INTERRUPTED) from None
    finally:
        shown.close()
    captured = sum(capture.size for capture in outcome.captures.values())
    more = [("captured", megabytes(captured))] if captured else []
    show_summary(console, folder, more, time.perf_counter() - begin)
