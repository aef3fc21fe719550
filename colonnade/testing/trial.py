"""Runs of a protocol on the virtual clock, made once and shared by several tests, and their authors' expectations."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colonnade.common.config.members import Config
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS, NAMES, OUTSIDE
from colonnade.common.conversation import inprocess
from colonnade.common.errors import ColonnadeError, ConfigError
from colonnade.common.parsing.file import parse
from colonnade.common.run.device import torch_threads
from colonnade.common.run.state import Snapshot
from colonnade.simulation.federation import Outcome, RunFiles, Simulation


@dataclass(frozen=True)
class Expected:
    """Expected properties of a protocol's runs. The defaults fit a synchronous protocol of neural networks.

    Args:
        accuracy: the least test accuracy after `epochs` on the ten classes of the digits; chance is 0.1.
        epochs: length of the learning run, with batches of 128 rows.
        order_matters: True if a late message changes the result even if all parties are waited for, as in asynchronous
            protocols.
        needs_all: True if a round is skipped unless every party responds.
        unused: declared messages that no run under this configuration sends.
        fresh: kinds of messages with values that no seed determines, such as keys.
        rounding: relative difference between the test loss of training and that of the model in its parts.
        free: names of dimensions whose sizes the contract bounds but does not fix.
        sets: changes of the configuration, as with `--set`: `"every_party.optimiser.lr=0.05"`.
        parties: number of parties, at least 3; one of them is the straggler.
    """

    accuracy: float = 0.5
    epochs: int = 10
    order_matters: bool = False
    needs_all: bool = False
    unused: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    rounding: float = 1e-5
    free: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    parties: int = 4


def digits(protocol: Mapping[str, Any], /, **federation: Any) -> dict[str, Any]:
    """A configuration tree: four parties with 16 of 64 columns each, 1797 rows, ten classes.

    For a scorecard, which needs two classes: 569 rows of scikit-learn's breast cancer, seven or eight columns a party.

    Args:
        protocol: the section `federation.protocol`, with its `name`.
        federation: other keys of `federation`; they replace the defaults.
    """
    two = CONTRACTS[protocol["name"]].config.cards
    labels = {"source": "sklearn", "name": "breast_cancer" if two else "digits"}
    columns = {**labels, "split": "columns"}
    tree: dict[str, Any] = {
        "federation": {
            "id": "test",
            "parties": 4,
            "classes": 2 if two else 10,
            "epochs": 2,
            "batch": 256,
            "seed": 0,
            "public_start": True,  # runs are compared to the last bit
            "protocol": dict(protocol),
            **federation,
        },
        "server": {"labels": labels},
        "every_party": {"data": columns},
    }
    if CONTRACTS[protocol["name"]].active:
        tree["server"]["active"] = {"data": dict(columns)}
    return tree


ROUNDS = 4
"""In a short run, which ends in the second epoch of three rounds each."""
BATCH = 500
DELAY, GRACE = 5.0, 1.0  # seconds
SLOW = "party2"
_LONGEST = 3600.0  # seconds of the virtual clock, in which every run of the suite has to end
_PATIENCE = 90.0  # seconds of processor time: wall time would depend on other load


class Trial:
    """A protocol under the suite's conditions."""

    def __init__(self, name: str, expected: Expected, keys: Mapping[str, Any]) -> None:
        self.name, self.expected, self.keys = name, expected, dict(keys)
        self.run = cache(self._run)

    def forget(self) -> None:
        """Drops all runs."""
        self.run.cache_clear()
        self.__dict__.pop("learned", None)

    @cached_property
    def contract(self) -> Contract[Any]:
        """The protocol's contract. Raises ConfigError if no installed package registers the name."""
        if self.name not in NAMES and self.name not in OUTSIDE.entries:
            raise ConfigError(
                f"no installed package registers a protocol {self.name!r}",
                hint=f"install yours, `pip install -e .`, with an entry point in the group {OUTSIDE.group}",
            )
        return CONTRACTS[self.name]

    def tree(self) -> dict[str, Any]:
        """The configuration as a file has it, without `Expected.sets`."""
        _ = self.contract
        return digits({"name": self.name, **self.keys}, parties=self.expected.parties)

    def config(self, *sets: str) -> Config:
        """The configuration of a short run. Raises ConfigError."""
        short = (f"federation.rounds={ROUNDS}", "federation.epochs=0", f"federation.batch={BATCH}")
        return parse(self.tree(), (*short, "federation.shuffle=true", *self.expected.sets, *sets))

    @cached_property
    def learned(self) -> Outcome:
        """The long run."""
        length = (f"federation.epochs={self.expected.epochs}", "federation.batch=128", "federation.shuffle=true")
        return simulate(Simulation(parse(self.tree(), (*length, *self.expected.sets))))

    @property
    def alone(self) -> Outcome:
        """The short run, undisturbed, with every member's state after every round."""
        return self.run()

    @property
    def delayed(self) -> Outcome:
        """The short run in which all parties are waited for and one is late."""
        return self.run(f"parties.{SLOW}.chaos.delay={DELAY}s")

    def missed(self, again: int = 0) -> Outcome:
        """The short run that continues without the late party. `again` gives another run of it."""
        need = self.expected.parties - 1
        return self.run(
            f"parties.{SLOW}.chaos.delay={DELAY}s", f"federation.quorum={{need: {need}, grace: {GRACE}}}", again=again
        )

    def resumed(self, round: int) -> Outcome:
        """The short run, continued from the states after a round."""
        return self.resume(round, self.alone.saved[round])

    def resume(self, round: int, states: Mapping[str, Snapshot]) -> Outcome:
        """The short run, continued after a round from these states; members without one begin anew."""
        return simulate(Simulation(self.config(), record=True, save=True, start=(round, states)))

    def captured(self, folder: Path) -> Outcome:
        """The short run in which every party captures its messages below a folder."""
        config = self.config("every_party.capture={evaluations: all}")
        return simulate(Simulation(config, record=True, files=RunFiles(folder, config, Path())))

    def _run(self, *sets: str, again: int = 0) -> Outcome:
        # Generators outside members' states start differently in another run, as in another process.
        with _other_generators(again):
            return simulate(Simulation(self.config(*sets), record=True, save=True))


def simulate(simulation: Simulation) -> Outcome:
    """Runs a simulation within an hour of the virtual clock.

    Raises:
        TimeoutError: it does not end.
        RuntimeError: every coroutine waits for another.
    """
    with torch_threads(1):  # products are small: several threads only wait for each other
        return simulation.run(_ImpatientLoop)


class _ImpatientLoop(inprocess.VirtualLoop):
    """A virtual loop that a run cannot keep busy forever."""

    def __init__(self, begin: float = 0.0) -> None:
        super().__init__(begin)
        self._begun, self._over = time.process_time(), False

    def time(self) -> float:
        """Virtual seconds. Raises TimeoutError once, if the run takes too long in virtual or in processor time."""
        now = super().time()
        if not self._over and (now > _LONGEST or time.process_time() - self._begun > _PATIENCE):
            self._over = True  # the loop still has to cancel the run
            raise TimeoutError(f"the run does not end: {now:.0f} s on the virtual clock")
        return now


@contextmanager
def _other_generators(seed: int) -> Iterator[None]:
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)  # the one that a protocol may have used
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def explain(error: Exception) -> str:
    """An error of a run, with its hint."""
    hint = error.hint if isinstance(error, ColonnadeError) else ""
    return f"{type(error).__name__}: {error}" + (f" ({hint})" if hint else "")
