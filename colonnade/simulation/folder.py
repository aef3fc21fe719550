"""A simulated run with a folder of its own, like a real run's without the files of processes and the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from torch import Tensor

from colonnade.common.config.members import Config
from colonnade.common.observability.telemetry import Event, Listener, Telemetry
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.tracking.tracker import Status
from colonnade.server.member import summary
from colonnade.server.member.scores import write_scores
from colonnade.server.member.summary import write_whole
from colonnade.server.member.timeline import timeline
from colonnade.server.member.tracking import server_tracking
from colonnade.simulation.contexts import Side
from colonnade.simulation.federation import Outcome, RunFiles, Simulation


def simulate_in(config: Config, base: Path, folder: Path, listeners: Sequence[Listener] = ()) -> Outcome:
    """Runs a federation on the virtual clock, or resumes the run in its folder, and leaves the files of a run."""
    run = RunFolder(folder)
    telemetry = Telemetry(run.events, _forgetting(run), *listeners)
    simulation = Simulation(config, base, telemetry=telemetry, files=RunFiles(folder, config, base))
    with closing(telemetry), tracked(telemetry, config, base, folder):
        try:
            return simulation.run()
        finally:
            _write_summary(simulation, run)


def _forgetting(run: RunFolder) -> Listener:
    """Removes an earlier start's results when this one has done a round."""
    left = [run]

    def note(event: Event) -> None:
        if left and event["kind"] == "round":
            left.pop().forget_results()

    return note


def _write_summary(simulation: Simulation, run: RunFolder) -> None:
    """Writes summary.json, unless that of an earlier start is still valid."""
    done = simulation.outcome
    if done is not None and (done.server.round > simulation.start[0] or not run.summary.exists()):
        presence = timeline(run.events, simulation.config.federation.names)
        write_scores(run.scores, done.server)
        write_whole(run.summary, {**summarise(done), "timeline": presence})


def simulate_captured(
    config: Config, base: Path, folder: Path, sample: Tensor | None = None, *, instead: Mapping[str, Side] | None = None
) -> None:
    """Runs a federation whose parties capture, into its own folder, without output.

    Args:
        sample: rows of the sources to use; None for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = RunFiles(folder, config, base, whole=sample is None)
    outcome = Simulation(config, base, files=files, sample=sample, instead=instead or {}).run()
    write_whole(RunFolder(folder).summary, summarise(outcome))


def summarise(outcome: Outcome) -> dict[str, object]:
    """Contents of summary.json, without what only processes and a wire provide."""
    releases, (up, down) = {name: privacy.releases for name, privacy in outcome.privacy.items()}, outcome.payload
    found = summary.summarise(
        outcome.server, outcome.totals, outcome.status, outcome.error,
        seconds=round(outcome.seconds, 6), saved=outcome.best_saved, releases=releases,
    )  # fmt: skip
    return {
        **found,
        "clock": "virtual",
        "start": "seeded" if outcome.server.draws.public else "secret",
        "bytes": {"up": {"payload": up}, "down": {"payload": down}},
    }


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
