"""Simulates a run's federation again, with a member that departs from the protocol.

The member's side is a coroutine that replaces the protocol's, in one process and on the virtual clock. A process of a
real federation cannot be given one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colonnade.common.config.chaos import ChaosConfig
from colonnade.common.config.members import Config
from colonnade.common.config.run_options import CaptureConfig
from colonnade_lab.attacks.run import AttackedRun, open_run

Deviation = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""(context, link or cohort, config of the protocol) -> one member's side."""
Simulate = Callable[..., object]
"""`colonnade.simulation.folder.simulate_captured`, which brings all protocols."""

_LAST = 10**9  # epochs between two kept ones: only the last is kept


@contextmanager
def deviating(run: AttackedRun, instead: Mapping[str, Deviation], simulate: Simulate) -> Iterator[AttackedRun]:
    """Simulates the run with other sides for some members, by name, and deletes its folder afterwards."""
    with tempfile.TemporaryDirectory(prefix="colonnade-deviating-") as name:
        simulate(_still(run.config), run.base, Path(name), run.sample, instead=instead)
        yield open_run(Path(name), run.sample, captured=False)


def _still(config: Config) -> Config:
    """Returns the configuration without captures of training and without injected faults."""
    own = {"capture": CaptureConfig(every=_LAST), "chaos": ChaosConfig()}
    parties = {name: party.model_copy(update=own) for name, party in config.parties.items()}
    return config.model_copy(update={"parties": parties})
