"""`colonnade simulate`: a whole federation on the virtual clock, in this process."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import torch
import yaml
from rich.table import Table
from torch import Tensor

from colonnade.cli.check import check_members
from colonnade.cli.folder import run_folder
from colonnade.cli.guarantee import describe_privacy, details
from colonnade.cli.progress import megabytes
from colonnade.cli.screen import out as console
from colonnade.cli.simulation import Outcome, Simulation
from colonnade.cli.summary import metric_rows, own_models, what_else
from colonnade.common.checkpoints import Checkpoints, Owner
from colonnade.common.config import Config, load
from colonnade.common.conversation import SERVER
from colonnade.common.environment import describe_environment
from colonnade.common.telemetry import Telemetry
from colonnade.server.summary import findings, protection, write_whole


def simulate(file: Path, sets: tuple[str, ...], out: Path | None) -> None:
    """Runs a federation to its end and prints what it learned, and how long it would have taken."""
    config = load(file, sets)
    check_members(config, file)
    torch.set_num_threads(max(1, config.server.threads if config.server else 1))
    with run_folder(out, f"{config.federation.id}-virtual") as folder:
        begin = time.perf_counter()
        telemetry = Telemetry(folder / "events.jsonl")
        base = file.parent.resolve()
        outcome = Simulation(config, base, telemetry=telemetry, home=partial(_home, folder)).run()
        telemetry.close()
        if outcome.captures:
            leave_for_attacks(folder, config, base, outcome)
        content = summary(outcome)
        write_whole(folder / "summary.json", content)
        _show(outcome, folder, time.perf_counter() - begin)


def simulate_captured(config: Config, base: Path, folder: Path, sample: Tensor | None = None) -> None:
    """Runs a federation whose parties capture, into a folder of its own, and says nothing.

    Args:
        base: the folder that paths in the config are relative to.
        folder: the run's; made if it is not there.
        sample: the rows of the sources that there are to be; None for all.
    """
    outcome = Simulation(config, base, home=partial(_home, folder), sample=sample).run()
    leave_for_attacks(folder, config, base, outcome)
    write_whole(folder / "summary.json", summary(outcome))


def _home(folder: Path, name: str) -> Path:
    """A party's folder, where it captures."""
    (home := folder / "parties" / name).mkdir(parents=True, exist_ok=True)
    return home


def leave_for_attacks(folder: Path, config: Config, base: Path, outcome: Outcome) -> None:
    """Writes what `colonnade attack` has to know beside the captures: the configuration, and everyone's state.

    Raises:
        EnvironmentFault: the disk refuses it.
    """
    ctx = outcome.server
    tree = config.model_dump(mode="json", exclude_none=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    (folder / "simulated.json").write_text(json.dumps({"base": str(base)}))
    states = {SERVER: ctx.state} | {name: client.state for name, client in outcome.clients.items()}
    for member, state in states.items():
        home = folder if member == SERVER else _home(folder, member)
        owner = Owner(member, "simulated", ctx.federation.lasting_hashes())
        Checkpoints(home / "checkpoints").save(ctx.round, state.capture(), owner)


def summary(outcome: Outcome) -> dict[str, object]:
    """What a real run's summary.json says, as far as there is something to say without processes and a wire."""
    ctx = outcome.server
    names = ctx.federation.names
    return {
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
        "environment": describe_environment(),
    }


def _show(outcome: Outcome, folder: Path, seconds: float) -> None:
    ctx = outcome.server
    table = Table(show_header=False, title=f"{ctx.federation.protocol.name}, simulated")
    table.add_row("rounds", str(ctx.round))
    for name, words in (*metric_rows(summary(outcome)), *own_models(ctx.metrics)):
        table.add_row(name, words)
    table.add_row("parties to server", f"{megabytes(outcome.payload[0])} of tensors")
    table.add_row("server to parties", f"{megabytes(outcome.payload[1])} of tensors")
    said = summary(outcome)
    table.add_row("privacy", describe_privacy(said))
    for name, words in details(said):
        table.add_row(name, words)
    table.add_row("answers missing, late", f"{sum(ctx.missing.values())}, {outcome.mailbox.late.total()}")
    for name, words in what_else(findings(ctx)):
        table.add_row(name, words)
    if outcome.captures:
        table.add_row("captured", megabytes(sum(capture.size for capture in outcome.captures.values())))
    table.add_row("time", f"{outcome.seconds:.1f} s of delays, simulated in {seconds:.1f} s")
    console.print(table)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)
