"""Opens a finished run in one process: every member's data and trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.client.protocols import LOCAL, SPLITS
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local, Splits
from colonnade.common.config.members import Config
from colonnade.common.contracts.owner import owner_of
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.state import Snapshot, State
from colonnade.server.protocols import FORESTS, JOINT
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import Decided, Joint
from colonnade.server.training.trees.forest import Forest
from colonnade.simulation.contexts import client_context, server_context

Say = Callable[[str], object]

_NO_RUN = "give the folder that `up` printed; a run on machines of their own cannot be opened on one of them"


@dataclass
class Trained:
    """A run's model in its parts.

    Attributes:
        base: folder that paths in the config are relative to.
        joint: the server's part, or its forest.
        locals: each party's part in roster order, in evaluation mode; empty for a forest.
        splits: each party's part of a forest, in roster order.
        heads: weights applied to each party's embeddings, (width, outputs) each; None if there are none.
        first_heads: `heads` before the first round.
    """

    folder: RunFolder
    config: Config
    base: Path
    round: int
    summary: dict[str, Any]
    server: ServerContext
    joint: Joint | Decided
    clients: dict[str, ClientContext] = field(default_factory=dict)
    locals: dict[str, Local] = field(default_factory=dict)
    splits: dict[str, Splits] = field(default_factory=dict)
    heads: list[Tensor] | None = None
    first_heads: list[Tensor] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.config.federation.names

    @property
    def forest(self) -> Forest | None:
        return self.joint.forest if isinstance(self.joint, Decided) else None

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """The parties' answers in a prediction, in roster order -> logits (rows, outputs)."""
        return self.joint.of_sides(parts) if isinstance(self.joint, Decided) else self.joint.logits(parts)


def open_run(folder: Path, say: Say = lambda _line: None) -> Trained:
    """Reads a run's configuration, data and model."""
    run = RunFolder(folder)
    run.refuse_unreadable()
    base, summary = _read(run)
    config = load_begun(run.config)
    protocol = config.federation.protocol
    if protocol.name not in JOINT and protocol.name not in FORESTS:
        raise InputError(
            f"a run of {protocol.name} cannot be explained: it does not say what its joint model is",
            hint=f"there are {', '.join([*JOINT, *FORESTS])}",
        )
    round, states = _checkpoint(run, config, base)
    say(f"reading the data of {len(config.federation.names)} parties; the model is of round {round}")
    ctx = server_context(config, base, Telemetry(), run)
    begun = None if protocol.name in FORESTS else JOINT[protocol.name](ctx, protocol).heads()
    begun = begun and [head.clone() for head in begun]
    ctx.restore(round, states[SERVER])
    joint = (FORESTS if protocol.name in FORESTS else JOINT)[protocol.name](ctx, protocol)
    trained = Trained(run, config, base, round, summary, ctx, joint)
    own = [_open_party(trained, run, name, states[name]) for name in trained.names]
    if isinstance(joint, Decided):
        return trained
    trained.heads, trained.first_heads = joint.heads(), begun
    if trained.heads is None:
        trained.heads = _all([trained.locals[name].weight for name in trained.names])
        trained.first_heads = _all(own)
    return trained


def _open_party(trained: Trained, run: RunFolder, name: str, snapshot: Snapshot) -> Tensor | None:
    """Adds a party, and returns its own head as before the first round, if it has one."""
    ctx = client_context(trained.config, name, trained.base, run.party(name))
    protocol = trained.config.federation.protocol
    trained.clients[name] = ctx
    if trained.forest is not None:
        ctx.state, ctx.round = State(snapshot), trained.round
        trained.splits[name] = SPLITS[protocol.name](ctx, protocol)
        return None
    make = LOCAL[protocol.name]
    first = make(ctx, protocol).weight
    ctx.state, ctx.round = State(snapshot), trained.round
    local = make(ctx, protocol)
    local.eval()
    trained.locals[name] = local
    return None if first is None else first.clone()


def _all(heads: list[Any]) -> list[Tensor] | None:
    return None if any(head is None for head in heads) else [head.detach() for head in heads]


def _read(run: RunFolder) -> tuple[Path, dict[str, Any]]:
    """Folder that the configuration's paths are relative to, and the summary of a run that has ended."""
    base = run.begun_base(_NO_RUN)
    summary = run.read_summary() or {}
    status = summary.get("status", "not at its end")
    if status != "completed":
        raise InputError(
            f"the run in {run.path} is {status}",
            hint=f"end it first: colonnade {'simulate' if run.virtual else 'up'} --resume {run.path}",
        )
    return base, summary


def _checkpoint(run: RunFolder, config: Config, base: Path) -> tuple[int, dict[str, Snapshot]]:
    """The best round, or else the newest with a whole checkpoint of every member, and all states after it."""
    members = (SERVER, *config.federation.names)
    stores = {name: Checkpoints(run.member(name).checkpoints) for name in members}
    held: dict[str, set[int]] = {}
    for name, store in stores.items():
        owner = _owner(run, name, config, base)
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
    return round, {name: store.load(round, _owner(run, name, config, base)) for name, store in stores.items()}


def _owner(run: RunFolder, member: str, config: Config, base: Path) -> Owner:
    if (number := run.number()) is None:
        raise CheckpointError(f"{run.run} is missing or was altered", hint="run it again")
    own = config.server if member == SERVER else config.parties[member]
    return owner_of(config.federation, member, own, base, number)
