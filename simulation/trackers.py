"""Experiment trackers of a simulated federation: the server's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.common.config.members import Config
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.common.tracking.tracker import Status
from colonnade.server.run.tracking import server_tracking


@contextmanager
def tracked(telemetry: Telemetry, config: Config, base: Path, folder: Path) -> Iterator[None]:
    """Tracks a simulated run until the block ends, and then sends RUN/summary.json.

    Args:
        telemetry: receives the run's events; must stay open until the block has ended.
    """
    if config.server is None or not config.server.trackers:
        yield
        return
    run = RunFolder(folder)
    tracking = server_tracking(config.federation, config.server, base, folder, lambda: run.number() or "")
    tracking.report = telemetry.pass_on
    status: Status = "failed"
    last = 0

    def listen(event: Event) -> None:
        nonlocal last
        last = event["round"] if event["kind"] == "round" else last
        tracking(event)

    telemetry.add(listen)
    try:
        yield
        status = "completed"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        tracking.finish(status, last, run.read_summary())
