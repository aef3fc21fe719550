"""Experiment trackers of the server. See docs/trackers.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.run.state import State, saved_parameters
from colonnade.common.tracking.allowed import agreed_parameters, own_parameters
from colonnade.common.tracking.listener import Tracked, Tracking
from colonnade.common.tracking.tracker import TrackedRun, prepare

PLACE = "server.trackers"

_MODELS = ("head", "heads", "active model")  # keys of models in the state


def server_tracking(
    federation: FederationConfig, config: ServerConfig, base: Path, folder: Path, number: Callable[[], str]
) -> Tracking:
    """The server's trackers, as a listener of its events. Nothing is opened before the run begins.

    `number` returns the run's number once it has begun; "" if it has none. Raises ConfigError if a tracker's address in
    the environment contains a password.
    """
    prepare(PLACE, config.trackers)
    parameters = {
        **agreed_parameters(federation.model_dump(mode="json"), federation.names, federation.outputs),
        **own_parameters(config.model_dump(mode="json")),
        "member": SERVER,
    }
    run = TrackedRun(federation.id, SERVER, folder, base)
    return Tracking(config.trackers, Tracked(PLACE, run, parameters, federation.names, number))


def server_model(state: State) -> bytes | None:
    """The server's head, and the model of its own columns, as safetensors; None if it has neither."""
    return saved_parameters(state, _MODELS)
