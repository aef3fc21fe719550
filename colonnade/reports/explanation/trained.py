"""Opens a finished run in one process: every member's data and trained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.client.protocols import LOCAL
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.common.alignment.record import kept_rows
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.state import Snapshot, State
from colonnade.server.protocols import JOINT
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import Joint
from colonnade.simulation.contexts import client_context, server_context

Say = Callable[[str], object]

_NO_RUN = "give the folder that `up` printed; a run on machines of their own cannot be opened on one of them"


@dataclass
class Trained:
    """A run's model in its parts.

    Attributes:
        base: folder that paths in the config are relative to.
        round: of the model.
        summary: content of summary.json.
        joint: the server's part.
        locals: each party's part in roster order, in evaluation mode.
        heads: weights applied to each party's embeddings, (width, outputs) each; None if there are none.
        first_heads: `heads` before the first round.
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
        return self.config.federation.names


def open_run(folder: Path, say: Say = lambda _line: None) -> Trained:
    """Reads a run's configuration, data and model."""
    run = RunFolder(folder)
    run.refuse_unreadable()
    base, summary = _read(run)
    config = load_begun(run.config)
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
    round, states = _checkpoint(run, config)
    say(f"reading the data of {len(config.federation.names)} parties; the model is of round {round}")
    ctx = server_context(config, base, Telemetry(), _rows(config, run, SERVER), cache=TableCache(run.path))
    begun = JOINT[protocol.name](ctx, protocol).heads()
    begun = begun and [head.clone() for head in begun]
    ctx.restore(round, states[SERVER])
    trained = Trained(config, base, round, summary, ctx, JOINT[protocol.name](ctx, protocol))
    own = [_open_party(trained, run, name, states[name]) for name in trained.names]
    trained.heads, trained.first_heads = trained.joint.heads(), begun
    if trained.heads is None:
        trained.heads = _all([trained.locals[name].weight for name in trained.names])
        trained.first_heads = _all(own)
    return trained


def _open_party(trained: Trained, run: RunFolder, name: str, snapshot: Snapshot) -> Tensor | None:
    """Adds a party, and returns its own head as before the first round, if it has one."""
    rows = _rows(trained.config, run, name)
    cache = TableCache(run.party(name).path)
    ctx = client_context(trained.config, name, trained.base, sample=rows, cache=cache)
    protocol = trained.config.federation.protocol
    make = LOCAL[protocol.name]
    first = make(ctx, protocol).weight
    ctx.state, ctx.round = State(snapshot), trained.round
    local = make(ctx, protocol)
    local.eval()
    trained.clients[name], trained.locals[name] = ctx, local
    return None if first is None else first.clone()


def _rows(config: Config, run: RunFolder, member: str) -> Tensor | None:
    """The run's rows of a member's table; None for all."""
    return None if config.federation.align == "none" else kept_rows(RunCache(run.member(member).run_cache), member)


def _all(heads: list[Any]) -> list[Tensor] | None:
    return None if any(head is None for head in heads) else [head.detach() for head in heads]


def _read(run: RunFolder) -> tuple[Path, dict[str, Any]]:
    """Folder that the configuration's paths are relative to, and the summary of a run that has ended."""
    if (base := run.base()) is None:
        raise InputError(f"{run.path} holds no run that `up` has begun", hint=_NO_RUN)
    summary = run.read_summary() or {}
    status = summary.get("status", "not at its end")
    if status != "completed":
        raise InputError(f"the run in {run.path} is {status}", hint=f"end it first: colonnade up --resume {run.path}")
    return base, summary


def _checkpoint(run: RunFolder, config: Config) -> tuple[int, dict[str, Snapshot]]:
    """The best round, or else the newest with a whole checkpoint of every member, and all states after it."""
    members = (SERVER, *config.federation.names)
    stores = {name: Checkpoints(run.member(name).checkpoints) for name in members}
    held: dict[str, set[int]] = {}
    for name, store in stores.items():
        owner = _owner(run, name, config)
        if not (rounds := store.of_model(owner, run.model_record)):
            raise CheckpointError(
                f"{run.member(name).checkpoints} holds no whole checkpoint of {name}",
                hint="the folders of all members are needed as the run left them; otherwise run it again",
            )
        held[name] = set(rounds)
    if not (common := set.intersection(*held.values())):
        raise CheckpointError(
            f"there is no round of which all members in {run.path} have a checkpoint", hint="run it again"
        )
    round = max(common)
    return round, {name: store.load(round, _owner(run, name, config)) for name, store in stores.items()}


def _owner(run: RunFolder, member: str, config: Config) -> Owner:
    if (number := run.number()) is None:
        raise CheckpointError(f"{run.run} is missing or was altered", hint="run it again")
    return Owner(member, number, config.federation.lasting_hashes())
