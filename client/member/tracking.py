"""Experiment trackers of a party: its own record of a run. See docs/trackers.md."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.client.member.sessions import PartySessions
from colonnade.client.training.progress import TrainingProgress
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.run.phases import CHECKPOINT, COMPUTING, WAITING
from colonnade.common.run.run_folder import PartyFolder, read_record
from colonnade.common.run.state import saved_parameters
from colonnade.common.tracking.listener import Tracked, Tracking
from colonnade.common.tracking.tracker import Status, TrackedRun, prepare

_MODELS = ("model", "head", "weights")  # keys of a party's models in its state
_PHASES = (COMPUTING, WAITING, CHECKPOINT)


def party_tracking(name: str, federation: FederationConfig, config: PartyConfig, base: Path, folder: Path) -> Tracking:
    """A party's trackers, as a listener of its events. Nothing is opened before the run begins."""
    place, pinned = f"parties.{name}.trackers", PartyFolder(folder).pinned
    prepare(place, config.trackers)
    parameters = {"id": federation.id, "protocol.name": federation.protocol.name, "member": name}
    run = TrackedRun(federation.id, name, folder, base)
    return Tracking(
        config.trackers,
        Tracked(place, run, parameters, (name,), lambda: str((read_record(pinned) or {}).get("run", ""))),
    )


@contextmanager
def tracked(tracking: Tracking, sessions: PartySessions) -> Iterator[None]:
    """Tracks the rounds of a party, and ends its record however the run ends."""
    status: Status = "failed"
    sessions.progress.on_round = lambda round: tracking.party(round, _values(sessions.progress))
    try:
        yield
        status = "completed"
    except (asyncio.CancelledError, KeyboardInterrupt):
        status = "interrupted"
        raise
    finally:
        progress = sessions.progress
        tracking.party(progress.round, {**_values(progress), **_epsilon(progress)})
        state = sessions.state
        tracking.finish(
            status, progress.round, model=lambda: None if state is None else saved_parameters(state, _MODELS)
        )


def _values(progress: TrainingProgress) -> dict[str, float]:
    seconds = progress.phases.seconds()
    values = {f"seconds_{phase}": seconds[phase] for phase in _PHASES}
    values["bytes_sent"], values["bytes_received"] = (
        float(sum(size for _, size in book.values())) for book in (progress.traffic.sent, progress.traffic.received)
    )
    if progress.privacy is not None and progress.privacy.plan is not None:
        values["releases"] = progress.privacy.releases
    return values


def _epsilon(progress: TrainingProgress) -> dict[str, float]:
    """The budget spent, if there is a guarantee. It takes time to compute: call it only at the end."""
    privacy = progress.privacy
    if privacy is None or privacy.plan is None or privacy.plan.void is not None:
        return {}
    return {"epsilon": privacy.plan.epsilon(privacy.releases)}
