"""`colonnade export --party server`: the server's part of a model, from all parties' parts to outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.cli.read.export_forest import FILE, server_part
from colonnade.cli.read.export_shapes import server_shapes
from colonnade.cli.read.exported import NO_NETWORK, RECORD, TRACED, programs_of, write_json, write_part
from colonnade.common.alignment.record import kept_rows
from colonnade.common.config.members import Config
from colonnade.common.contracts import prediction
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.state import State
from colonnade.common.version import VERSION
from colonnade.server.protocols import ACTIVE, FORESTS, JOINT
from colonnade.server.training.fusion.joint import Joint
from colonnade.server.training.trees.gradients import ScoreSum
from colonnade.simulation.contexts import server_context

_LEARNED = ("head", "heads", "weights")  # names in the server's state


class ServerPart(nn.Module):
    """The joint model on the parties' parts: float32 (parties, rows, width) -> logits (rows, classes).

    Args:
        joint: in evaluation mode.
        state: the server's; its learned tensors are registered in this module.
    """

    def __init__(self, joint: Joint, state: State) -> None:
        super().__init__()
        self._joint = joint
        for name in _LEARNED:
            match state[name] if name in state else None:  # noqa: SIM401  # a State has no `get`
                case nn.Parameter() as learned:
                    self.register_parameter(name, learned)
                case nn.Module() as learned:
                    self.add_module(name, learned)

    def forward(self, parts: Tensor) -> Tensor:
        """Maps the parties' parts, in roster order, to logits, or to standardised targets in a regression."""
        return self._joint.logits(list(parts.unbind(0)))


def export_server(
    run: RunFolder, config: Config, base: Path, out: Path | None, *, onnx: bool = False
) -> tuple[Path, int]:
    """Writes model.safetensors, model.pt2 and model.json of the server's part, or forest.json; returns the folder and
    the round.

    Args:
        run: the server's own folder.
        base: folder that paths in the config are relative to.
        out: default: `export` in the run's folder.
        onnx: writes model.onnx too.
    """
    federation, server = config.federation, config.server
    name = federation.protocol.name
    if server is None:
        raise InputError("the configuration has no `server` section", hint="give the server's own file with --file")
    if name not in JOINT and name not in FORESTS:
        why = "the server's part needs its own columns or its rows" if name in ACTIVE else "it has no joint model"
        raise InputError(
            f"in {name} the server has no part of a model that stands alone: {why}",
            hint=f"there are {', '.join([*JOINT, *FORESTS])}",
        )
    store = Checkpoints(run.checkpoints)
    owner = Owner(SERVER, store.run(), federation.lasting_hashes())
    if not (rounds := store.of_model(owner, run.model_record)):
        raise CheckpointError(f"{run.checkpoints} holds no whole checkpoint", hint="a run saves one at its end")
    aligned = federation.align != "none"
    rows = kept_rows(RunCache(run.run_cache), SERVER) if aligned else None
    plain = config.model_copy(update={"server": server.model_copy(update={"device": "cpu"})})
    ctx = server_context(plain, base, Telemetry(), rows, cache=TableCache(run.path))
    ctx.restore(rounds[0], store.load(rounds[0], owner))
    into = out or run.path / "export"
    classes = None if ctx.scale is not None else list(ctx.classes)
    record = {
        "member": SERVER,
        "federation": federation.id,
        "protocol": name,
        "run": owner.run,
        "round": rounds[0],
        "output": {"what": "standardised targets" if classes is None else "logits", "classes": classes,
                   "targets": None if ctx.scale is None else ctx.scale.record(),
                   "decision": None if (made := ctx.decision) is None else {"class": ctx.positive, **made.record()}},
        "versions": {"colonnade": VERSION, "torch": str(torch.__version__)},
    }  # fmt: skip
    joint = None if name in FORESTS else JOINT[name](ctx, federation.protocol)
    if onnx and (joint is None or isinstance(joint, ScoreSum)):
        raise InputError(NO_NETWORK, hint="leave --onnx out: the part is a JSON file")
    if joint is None:
        write_json(into / FILE, server_part(FORESTS[name](ctx, federation.protocol), federation.names, record))
        return into, rounds[0]
    if isinstance(joint, ScoreSum):
        file, content = server_shapes(joint, federation.protocol, record)
        write_json(into / (file if federation.protocol.typed else RECORD), content)
        return into, rounds[0]
    model = ServerPart(joint, ctx.state).eval()
    width = prediction.width(federation)
    example = torch.zeros(len(federation.names), TRACED, width)
    with torch.no_grad():
        programs = programs_of(model, example, rows=1, onnx=onnx)
    shape: list[Any] = ["parties", "rows", width]
    what = CONTRACTS[name].exchange.predicts
    record["input"] = {"shape": shape, "dtype": "float32", "parties": list(federation.names), "what": what}
    write_part(into, model, programs, record, {})
    return into, rounds[0]
