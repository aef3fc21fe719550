"""Whole federations whose parcels a relay disturbs, on the virtual clock, and what must hold however they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from safetensors.torch import load_file

from colonnade.common.alignment.store import kept_rows
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.errors import ColonnadeError
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder
from tests.support.in_memory import members
from tests.support.relay import QUIET, Fault, Forge, Relay

BOUND = 3 * QUIET + 120
"""Virtual seconds within which all members end: three silences that the relay ends, and the members' time limits."""

Model = Mapping[str, bytes]
"""The tensors of a checkpoint, in bytes."""


@dataclass(frozen=True)
class End:
    """The end of a federation.

    Args:
        errors: of the members; None at the end of the run.
        models: every checkpoint of each member, by its file's name.
        seconds: on the virtual clock.
        relay: which disturbed it.
        events: of all members.
        status: of the run, as the server's summary has it.
        persons: keys of the rows that each member has found to be common, in their order, where rows are aligned.
    """

    errors: Mapping[str, BaseException | None]
    models: Mapping[str, Mapping[str, Model]]
    seconds: float
    relay: Relay
    events: tuple[Event, ...] = ()
    status: str = ""
    persons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def disturbed(
    cfg: Config, *faults: Fault, forge: Forge | None = None, prepare: Callable[[Path], object] = lambda _folder: None
) -> End:
    """Runs a federation whose parcels a relay disturbs.

    Args:
        cfg: of all members.
        faults: the relay's script.
        forge: makes forged parcels, if the script has any.
        prepare: writes what the members read into their folder.
    """

    async def main(folder: Path) -> End:
        prepare(folder)
        with members(folder, cfg) as there, patch("colonnade.common.tracking.listener.entry_points", _no_packages):
            relay = Relay(there, faults) if forge is None else Relay(there, faults, forge)
            there.through = relay.through
            with relay.watched():
                names = (SERVER, *cfg.federation.names)
                tasks = {name: there.start(name) for name in names}
                cutting = asyncio.ensure_future(relay.end_silences())
                _, left = await asyncio.wait(tasks.values(), timeout=BOUND)
                seconds = asyncio.get_running_loop().time()
                cutting.cancel()
                relay.wrongs += [f"{name} hangs" for name, task in tasks.items() if task in left]
                for task in left:
                    task.cancel()
                ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
                relay.end()
        models = {name: _models(folder / name / "checkpoints") for name in names}
        persons = {name: found for name in names if (found := _persons(folder, name))}
        status = json.loads((folder / SERVER / "summary.json").read_text()).get("status", "")
        return End(dict(zip(names, ended, strict=True)), models, seconds, relay, tuple(there.events), status, persons)

    with TemporaryDirectory() as folder:
        return run_virtual(main(Path(folder)))


def _no_packages(*, group: str) -> tuple[()]:
    """Installed packages, whose search takes a third of a run's time."""
    return ()


def _models(folder: Path) -> dict[str, Model]:
    return {path.stem: _read(path) for path in sorted(folder.glob("*.safetensors"))}


def _persons(folder: Path, name: str) -> tuple[str, ...]:
    """The keys are the first column of a member's table."""
    cache = RunCache(PartyFolder(folder / name).run_cache)
    if not cache.number("alignment"):
        return ()
    keys = [line.partition(",")[0] for line in (folder / f"{name}.csv").read_text().splitlines()[1:]]
    return tuple(keys[row] for row in kept_rows(cache, name).tolist())


def _read(path: Path) -> Model:
    """All but torch's generator, which the members of one process share: the last that begins a session seeds it."""
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items() if name != "random"}


def check(end: End, sound: End, *, learned: bool) -> None:
    """Fails if a member broke a rule, ended with an error that it does not declare, or has learned something else.

    Args:
        end: of a federation.
        sound: of the same one, undisturbed.
        learned: True if a fault may have changed what is learned.
    """
    assert not end.relay.wrongs, end.relay.wrongs
    undeclared = {name: error for name, error in end.errors.items() if not isinstance(error, ColonnadeError | None)}
    assert not undeclared, undeclared
    if learned:
        return
    for name, models in end.models.items():
        assert {stem: sound.models[name].get(stem, model) for stem, model in models.items()} == models, name
        if end.errors[name] is None:
            assert max(models) == max(sound.models[name]), name
