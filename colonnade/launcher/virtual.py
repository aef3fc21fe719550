"""A federation on the virtual clock, in this process, in a run's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from colonnade.common.config.members import Config
from colonnade.common.config.remedy import command
from colonnade.common.errors import TrainingDiverged
from colonnade.common.observability.telemetry import Event, Listener
from colonnade.common.run.device import torch_threads
from colonnade.launcher.configuration import GivenConfig, naming_tables
from colonnade.launcher.folder_lock import locked_folder, remove_new
from colonnade.launcher.readiness import load_resumed, refuse_tables
from colonnade.simulation.federation import Outcome
from colonnade.simulation.folder import simulate_in


def run_virtually(
    given: GivenConfig, out: Path | None = None, listeners: Sequence[Listener] = ()
) -> tuple[Path, Outcome]:
    """Runs a federation to its end. Returns the run's folder and the outcome.

    Raises:
        ColonnadeError: as in a real run; nothing is left of a run that has not begun.
        KeyboardInterrupt: its argument is the run's folder.
    """
    config = given.check()
    given.refuse_own(out)
    place = locked_folder(out, f"{config.federation.id}-virtual")
    with place as folder, naming_tables(given.places(folder)), _cleared(folder) as begun:
        config = given.put(folder)
        refuse_tables(config, given.base, folder)
        return folder, _simulate(config, given.base, folder, (begun, *listeners))


def resume_virtually(
    resume: Path, sets: Sequence[str] = (), listeners: Sequence[Listener] = ()
) -> tuple[Path, Outcome]:
    """Resumes the run in a folder from its newest checkpoint."""
    config, base = load_resumed(resume, sets, "give the folder that `simulate` or `up` printed")
    with locked_folder(None, "", resume) as folder:
        return folder, _simulate(config, base, folder, listeners)


def _simulate(config: Config, base: Path, folder: Path, listeners: Sequence[Listener]) -> Outcome:
    try:
        with torch_threads(max(1, config.server.threads if config.server else 1)):
            return simulate_in(config, base, folder, listeners)
    except TrainingDiverged as diverged:
        diverged.hint = command(config, diverged.members, diverged.sound, folder, "simulate")
        raise
    except KeyboardInterrupt as interrupted:
        interrupted.args = (folder,)
        raise


@contextmanager
def _cleared(folder: Path) -> Iterator[Callable[[Event], None]]:
    """Removes the leftovers of a run that never began. Yields a listener that notes its beginning."""
    there, begun = set(folder.rglob("*")), []

    def note(event: Event) -> None:
        if event["kind"] == "begin":
            begun.append(event)

    try:
        yield note
    except BaseException:
        if not begun:
            remove_new(folder, there)
        raise
