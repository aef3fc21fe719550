"""A finished run, opened again: everyone's data and what everyone had learned, in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.client.models.local import Local
from colonnade.client.protocols import LOCAL
from colonnade.client.training.context import ClientContext
from colonnade.common.alignment.record import kept_rows
from colonnade.common.checkpointing.checkpoints import Checkpoints, Owner
from colonnade.common.checkpointing.run_cache import Once
from colonnade.common.checkpointing.state import Snapshot, State
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.server.fusion.joint import Joint
from colonnade.server.protocols import JOINT
from colonnade.server.training.context import ServerContext
from colonnade.simulation.contexts import client_context, server_context

Say = Callable[[str], object]

_NO_RUN = "give the folder that `up` printed; a run on machines of their own cannot be opened on one of them"


@dataclass
class Trained:
    """A run's model in its parts.

    Attributes:
        base: the folder that paths in the config are relative to.
        round: that everything here is of.
        summary: what summary.json says.
        joint: the server's part.
        locals: each party's, in the roster's order, in evaluation mode.
        heads: what meets each party's embeddings, (width, outputs) each; None where there is no such thing.
        first_heads: the same before the first round.
    """

    config: Config
    base: Path
    round: int
    summary: dict[str, Any]
    server: ServerContext
    joint: Joint
    clients: dict[str, ClientContext] = field(default_factory=dict)
    locals: dict[str, Local] = field(default_factory=dict)
    heads: list[Tensor] | None = None
    first_heads: list[Tensor] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parties in the roster's order."""
        return self.config.federation.names


def open_run(folder: Path, say: Say = lambda _line: None) -> Trained:
    """Reads a run's configuration, data and newest common checkpoint.

    Args:
        folder: the run's, as `up` made it.
        say: told how far it is.

    Raises:
        InputError: it is no such folder, the run has not ended, or its protocol cannot be opened.
        CheckpointError: a member's checkpoints are gone or torn.
        DataError: the data are not where the configuration says.
    """
    base, summary = _read(folder)
    config = load_begun(folder / "config.yaml")
    protocol = config.federation.protocol
    if protocol.name not in JOINT:
        raise InputError(
            f"a run of {protocol.name} cannot be explained: it does not say what its joint model is",
            hint=f"there are {', '.join(JOINT)}",
        )
    if config.federation.task == "regression":
        raise InputError(
            "a run of a regression cannot be explained: what is measured is accuracy over classes",
            hint="`colonnade report` and `colonnade card` say how good it is",
        )
    round, states = _checkpoint(folder, config)
    say(f"reading the data of {len(config.federation.names)} parties; the model is of round {round}")
    ctx = server_context(config, base, Telemetry(), _rows(config, folder, SERVER))
    begun = JOINT[protocol.name](ctx, protocol).heads()
    begun = begun and [head.clone() for head in begun]
    ctx.restore(round, states[SERVER])
    trained = Trained(config, base, round, summary, ctx, JOINT[protocol.name](ctx, protocol))
    own = [_open_party(trained, folder, name, states[name]) for name in trained.names]
    trained.heads, trained.first_heads = trained.joint.heads(), begun
    if trained.heads is None:
        trained.heads = _all([trained.locals[name].weight for name in trained.names])
        trained.first_heads = _all(own)
    return trained


def _open_party(trained: Trained, folder: Path, name: str, snapshot: Snapshot) -> Tensor | None:
    """Adds a party, and returns its own head as it was before the first round, if it has one."""
    rows = _rows(trained.config, folder / "parties" / name, name)
    ctx = client_context(trained.config, name, trained.base, lambda values: values, sample=rows)
    protocol = trained.config.federation.protocol
    make = LOCAL[protocol.name]
    first = make(ctx, protocol).weight
    ctx.state, ctx.round = State(snapshot), trained.round
    local = make(ctx, protocol)
    local.eval()
    trained.clients[name], trained.locals[name] = ctx, local
    return None if first is None else first.clone()


def _rows(config: Config, home: Path, member: str) -> Tensor | None:
    """The rows that the run knew of a member's table; None for all."""
    return None if config.federation.align == "none" else kept_rows(Once(home / "once"), member)


def _all(heads: list[Any]) -> list[Tensor] | None:
    return None if any(head is None for head in heads) else [head.detach() for head in heads]


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The folder that the configuration's paths are relative to, and the summary of a run that has ended."""
    try:
        base = Path(json.loads((folder / "launch.json").read_text())["base"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder} holds no run that `up` has begun", hint=_NO_RUN) from None
    try:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        status = summary["status"]
    except (OSError, ValueError, KeyError, TypeError):
        status, summary = "not at its end", {}
    if status != "completed":
        raise InputError(f"the run in {folder} is {status}", hint=f"end it first: colonnade up --resume {folder}")
    return base, summary


def _checkpoint(folder: Path, config: Config) -> tuple[int, dict[str, Snapshot]]:
    """The newest round of which every member has a whole checkpoint, and all their states after it."""
    members = (SERVER, *config.federation.names)
    stores = {name: Checkpoints(_home(folder, name) / "checkpoints") for name in members}
    held: dict[str, set[int]] = {}
    for name, store in stores.items():
        if not (rounds := store.usable(_owner(folder, name, config))):
            raise CheckpointError(
                f"{_home(folder, name) / 'checkpoints'} holds no whole checkpoint of {name}",
                hint="the folders of all members are needed as the run left them; otherwise run it again",
            )
        held[name] = set(rounds)
    if not (common := set.intersection(*held.values())):
        raise CheckpointError(
            f"there is no round of which all members in {folder} have a checkpoint", hint="run it again"
        )
    round = max(common)
    return round, {name: store.load(round, _owner(folder, name, config)) for name, store in stores.items()}


def _owner(folder: Path, member: str, config: Config) -> Owner:
    try:
        run = str(json.loads((folder / "run.json").read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{folder / 'run.json'} is missing or was altered", hint="run it again") from None
    return Owner(member, run, config.federation.lasting_hashes())


def _home(folder: Path, member: str) -> Path:
    return folder if member == SERVER else folder / "parties" / member
