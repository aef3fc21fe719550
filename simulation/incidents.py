"""Warnings, checkpoints and injected faults of simulated members."""

from __future__ import annotations

from collections.abc import Callable

from colonnade.common.config.chaos import ChaosConfig, PatternIndex, Pause
from colonnade.common.config.members import Config
from colonnade.common.conversation.chaos import Chaos
from colonnade.common.errors import ConfigError
from colonnade.common.observability.telemetry import Telemetry


def warn(telemetry: Telemetry, party: str, reason: str) -> None:
    telemetry.event("warning", party=party, reason=reason)


async def at_once(write: Callable[..., None], *given: object) -> None:
    """Writes a checkpoint while the virtual clock stands."""
    write(*given)


def injected(config: Config, party: str, telemetry: Telemetry) -> Chaos | None:
    federation, faults = config.federation, config.parties[party].chaos
    if faults == ChaosConfig(computing=faults.computing):
        return None
    names = federation.names
    rows = federation.protocol.coded_batch(federation.batch, len(names))
    index = PatternIndex(names.index(party), len(names), rows)
    return Chaos(faults, index, federation.seed, VirtualIncidents(), telemetry.event)


class VirtualIncidents:
    """Pauses hold a party's messages; crashes need real processes."""

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        chaos.report("paused", round=pause.round, seconds=pause.seconds)
        chaos.hold(pause.seconds)

    def crash(self, chaos: Chaos, round: int) -> None:  # noqa: ARG002  # the port's
        raise ConfigError(
            f"chaos.crash = {round}: nothing can crash on the virtual clock", hint="run it with `up`, or pause instead"
        )


class GoBack(Exception):
    """All members go back to an earlier checkpoint."""
