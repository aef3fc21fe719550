"""Folder of a simulated run: like a real run's, without files of processes and a wire."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import yaml
from torch import Tensor

from colonnade.common.checkpointing.checkpoints import Checkpoints, Owner
from colonnade.common.config.members import Config
from colonnade.common.contracts.agreed_parts import parts_in_use
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.runtime.environment import describe_environment
from colonnade.common.runtime.run_folder import STAMP, SUMMARY_SCHEMA, RunFolder
from colonnade.server.reporting.summary import findings, protection, write_whole
from colonnade.simulation.federation import Outcome, Simulation


def simulate_captured(config: Config, base: Path, folder: Path, sample: Tensor | None = None) -> None:
    """Runs a federation whose parties capture, into its own folder, without output.

    Args:
        base: the folder that paths in the config are relative to.
        folder: the run's; created if missing.
        sample: rows of the sources to use; None for all.
    """
    outcome = Simulation(config, base, home=partial(home_of, folder), sample=sample).run()
    leave_for_attacks(folder, config, base, outcome)
    write_whole(RunFolder(folder).summary, summarise(outcome))


def home_of(folder: Path, name: str) -> Path:
    """A capturing party's folder."""
    home = RunFolder(folder).party(name)
    home.make()
    return home.path


def leave_for_attacks(folder: Path, config: Config, base: Path, outcome: Outcome) -> None:
    """Writes the inputs of `colonnade attack` besides the captures: the configuration, and every party's state.

    Raises:
        EnvironmentFault: the disk refuses it.
    """
    ctx, run = outcome.server, RunFolder(folder)
    tree = config.model_dump(mode="json", exclude_none=True)
    run.config.write_text(yaml.safe_dump(tree, sort_keys=False))
    run.simulated.write_text(json.dumps({"base": str(base), **STAMP}))
    states = {SERVER: ctx.state} | {name: client.state for name, client in outcome.clients.items()}
    for member, state in states.items():
        home = run.member(member)
        home.make()
        owner = Owner(member, "simulated", ctx.federation.lasting_hashes())
        Checkpoints(home.checkpoints).save(ctx.round, state.capture(), owner)


def summarise(outcome: Outcome) -> dict[str, object]:
    """Contents of a real run's summary.json, as far as they exist without processes and a wire."""
    ctx = outcome.server
    names = ctx.federation.names
    return {
        "schema": SUMMARY_SCHEMA,
        "status": "completed",
        "clock": "virtual",
        "federation": ctx.federation.id,
        "protocol": ctx.federation.protocol.name,
        "parties": list(names),
        "rounds": ctx.round,
        "seconds": round(outcome.seconds, 6),
        "metrics": dict(ctx.metrics),
        "best": ctx.best.summary(0),
        "stopped": ctx.stopped or None,
        **findings(ctx),
        "bytes": {"up": {"payload": outcome.payload[0]}, "down": {"payload": outcome.payload[1]}},
        **protection(ctx, {name: privacy.releases for name, privacy in outcome.privacy.items()}),
        "missing": {name: ctx.missing.get(name, 0) for name in names},
        "late": {name: outcome.mailbox.late[name] for name in names},
        "environment": describe_environment() | parts_in_use(ctx.federation, ctx.config),
    }
