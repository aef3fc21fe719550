"""`colonnade export`: a member's part of a model, for use outside Colonnade.

A network is a traced program. A forest, an additive model and a scorecard are JSON, from which any program computes
predictions: "Export" in docs/protocols/secureboost.md, additive.md and scorecard.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from colonnade.client.member.context import party_context
from colonnade.client.protocols import LOCAL, SPLITS
from colonnade.client.training.card import Card
from colonnade.client.training.local import Local, Splits
from colonnade.client.training.shapes import ShapeSum
from colonnade.common.alignment.store import kept_rows, rows_of_run
from colonnade.common.config.members import Config
from colonnade.common.config.models import PretrainedConfig
from colonnade.common.contracts import prediction
from colonnade.common.contracts.owner import owner_of
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.encode import Encoder
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_features
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import CheckpointError, InputError, nearest
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.earlier_defaults import as_begun, load_begun
from colonnade.common.parsing.file import load
from colonnade.common.protocols import scorecard
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.device import choose_device
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.common.run.state import State
from colonnade.common.version import VERSION
from colonnade.reports.console.outputs import make_folder, write_bytes
from colonnade.reports.console.screen import out as console
from colonnade.server.protocols import ACTIVE, FORESTS, JOINT
from colonnade.server.training.fusion.joint import Decided, Joint
from colonnade.server.training.trees.forest import Tree
from colonnade.server.training.trees.gradients import ScoreSum
from colonnade.simulation.contexts import server_context

TRACED = 7
"""Rows of the example that a program is made from: a number that nothing else is likely to have."""

RECORD = "model.json"
NO_NETWORK = "--onnx: a part of a forest, or of scores by column, is no network"
_SECRET = 0o600  # a model leaks information on its training rows
_WEIGHTS, _PROGRAM, ONNX = "model.safetensors", "model.pt2", "model.onnx"


def programs_of(model: nn.Module, example: Tensor, rows: int = 0, *, onnx: bool = False) -> dict[str, bytes]:
    """Traces programs for any number of rows, by name of their file; refuses models that cannot be traced.

    Args:
        model: in evaluation mode.
        example: input of `TRACED` rows.
        rows: axis of the rows.
        onnx: adds one for ONNX run times.
    """
    if onnx and find_spec("onnxscript") is None:
        raise InputError("--onnx needs onnxscript, which is not installed", hint="pip install 'colonnade[onnx]'")
    try:
        made = torch.export.export(model, (example,), dynamic_shapes=({rows: torch.export.Dim("rows")},))
        program = io.BytesIO()
        torch.export.save(made, program)
        programs = {_PROGRAM: program.getvalue()}
        if onnx:
            programs[ONNX] = _translated(made)
    except Exception as failed:  # a user's model may raise anything when traced
        reason = str(failed).splitlines()[0]
        raise InputError(
            f"the model cannot be exported as a program: {reason}",
            hint="its parameters are in the newest of the member's checkpoints, a safetensors file",
        ) from failed
    return programs


def _translated(program: torch.export.ExportedProgram) -> bytes:
    teller = logging.getLogger("torch.onnx")
    level = teller.level
    teller.setLevel(logging.ERROR)  # it misses torchvision, which no model here has
    try:
        with warnings.catch_warnings(action="ignore"):
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=["input"], output_names=["output"]
            )
    finally:
        teller.setLevel(level)
    assert made is not None
    return bytes(made.model_proto.SerializeToString())


def write_part(
    into: Path, model: nn.Module, programs: Mapping[str, bytes], record: Mapping[str, Any], more: Mapping[str, bytes]
) -> None:
    """Writes weights, programs, further files (`more`, by name), and model.json with the hashes of all."""
    make_folder(into)
    weights = safetensors.torch.save({name: value.contiguous() for name, value in model.state_dict().items()})
    files = {_WEIGHTS: weights, **programs, **more}
    for name, content in files.items():
        write_bytes(into / name, content, _SECRET)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    write_json(into / RECORD, {**record, "sha256": hashes})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    make_folder(path.parent)
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode(), _SECRET)


SHAPES, CARD = "shapes.json", "scorecard.json"


def server_shapes(joint: ScoreSum, protocol: Any, record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A file's name, and the initial scores; for a scorecard also the scale of points."""
    if len(joint.start) == 1 and record["output"]["classes"]:
        record["output"]["what"] = "logit of the second class"
    found = {**record, "start": joint.start.tolist()}
    if isinstance(protocol, scorecard.Config):
        return CARD, {**_schema("scorecard.server"), **found, "scale": protocol.scale(float(joint.start[0]))}
    return SHAPES, {**_schema("shapes.server"), **found}


def party_shapes(part: ShapeSum, record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A file's name, and the contribution of each bin of the party's columns and pairs, or its card."""
    if isinstance(part, Card):
        return CARD, {**_schema("scorecard.party"), **record, **part.record()}
    return SHAPES, {**_schema("shapes.party"), **record, **part.described()}


def _schema(kind: str) -> dict[str, Any]:
    return {"schema": f"colonnade.{kind}", "version": 1}


FILE = "forest.json"
_SERVER, _PARTY = ({"schema": f"colonnade.forest.{member}", "version": 1} for member in ("server", "party"))


def server_part(joint: Decided, names: Sequence[str], record: dict[str, Any]) -> dict[str, Any]:
    """The initial scores and the trees, whose nodes name parties' splits by number."""
    if len(joint.start) == 1 and record["output"]["classes"]:
        record["output"]["what"] = "logit of the second class"
    trees = [{"output": tree.output, "nodes": list(_nodes(tree, names))} for tree in joint.forest.trees]
    return {**_SERVER, **record, "parties": list(names), "start": joint.start.tolist(), "trees": trees}


def _nodes(tree: Tree, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for node, party in enumerate(tree.party.tolist()):
        if party < 0:
            yield {"value": float(tree.value[node])}
            continue
        left, right = tree.children[node].tolist()
        gain = float(tree.gain[node])
        yield {"party": names[party], "split": int(tree.record[node]), "left": left, "right": right, "gain": gain}


def party_part(splits: Splits, record: dict[str, Any]) -> dict[str, Any]:
    """The left side of each of the party's splits, by number."""
    return {**_PARTY, **record, "splits": [left for _, left, _ in splits.described()]}


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
    """Writes model.safetensors, model.pt2 and model.json of the server's part, or forest.json. Returns the folder and
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
    owner = owner_of(federation, SERVER, server, base, store.run())
    if not (rounds := store.of_model(owner, run.model_record)):
        raise CheckpointError(f"{run.checkpoints} holds no whole checkpoint", hint="a run saves one at its end")
    plain = config.model_copy(update={"server": server.model_copy(update={"device": "cpu"})})
    ctx = server_context(plain, base, Telemetry(), run)
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


@dataclass(frozen=True)
class ExportPlace:
    """Location of a party's run.

    Args:
        base: folder that paths in the config are relative to.
    """

    home: PartyFolder
    config: Config
    base: Path


@dataclass(frozen=True)
class OpenedParty:
    """A party's part of a model.

    Args:
        local: maps rows to outputs, in evaluation mode; for a forest its splits.
        shape: an input row's.
        encoder: maps the party's table to such rows.
    """

    local: Local | Splits
    shape: tuple[int, ...]
    round: int
    run: str
    encoder: Encoder
    names: tuple[str, ...]


def export(folder: Path, party: str, file: Path | None, out: Path | None, *, onnx: bool = False) -> None:
    """Writes model.safetensors, model.pt2 and model.json, and a copy of a party's encoder; for a forest forest.json,
    for shapes shapes.json, for a scorecard scorecard.json.

    Args:
        party: a name, or `server`.
        file: the member's own configuration if the run was elsewhere; `folder` is then the member's own.
        onnx: writes model.onnx too.
    """
    place = find_part(folder, party, file)
    if party == SERVER:
        into, round = export_server(RunFolder(folder), place.config, place.base, out, onnx=onnx)
        console.say(f"{into}: the server's part of the model after round {round}")
        console.say(f"  {', '.join(sorted(path.name for path in into.iterdir()))}", "dim")
        return
    opened = open_part(place, party)
    if onnx and (isinstance(opened.local, ShapeSum) or not isinstance(opened.local, Local)):
        raise InputError(NO_NETWORK, hint="leave --onnx out: the part is a JSON file")
    into, record, files = out or place.home.export, record_of(place.config, party, opened), FILE
    if isinstance(opened.local, ShapeSum):
        files, content = party_shapes(opened.local, record)
        write_json(into / files, content)
    elif isinstance(opened.local, Local):
        example = torch.zeros(TRACED, *opened.shape)
        programs = programs_of(opened.local, example, onnx=onnx)  # first: this step may fail
        encoder = {place.home.encoder.name: place.home.encoder.read_bytes()}
        write_part(into, opened.local, programs, record | opened.local.record(), encoder)
        files = f"model.safetensors, model.pt2 (torch.export), {f'{ONNX}, ' if onnx else ''}encoder.json, model.json"
    else:
        write_json(into / FILE, party_part(opened.local, record))
    console.say(f"{into}: {party}'s part of the model after round {opened.round}")
    console.say(f"  {files}", "dim")


def find_part(folder: Path, party: str, file: Path | None) -> ExportPlace:
    """Finds the party's folder below a run of `up`, or takes the folder itself with the party's own file."""
    if file is not None:
        config, home, base = as_begun(load(file, begun=True), folder), PartyFolder(folder), file.parent.resolve()
    else:
        run = RunFolder(folder)
        run.refuse_unreadable()
        base = run.begun_base("of a party by itself, name its file too: --file party1.yaml")
        config, home = load_begun(run.config), run.party(party)
    if party != SERVER and party not in config.parties:
        raise InputError(
            f"there is no party {party!r}{nearest(party, config.parties)}", hint="see --party; `server` is the server"
        )
    return ExportPlace(home, config, base)


def open_part(place: ExportPlace, party: str) -> OpenedParty:
    federation, own = place.config.federation, place.config.parties[party]
    name = federation.protocol.name
    if isinstance(own.model, PretrainedConfig):
        raise InputError(
            f"{party}'s part begins with the tower {own.model.name}/{own.model.architecture}, which no export holds",
            hint="predict with `colonnade predict` or `serve`; what was trained is in its checkpoints",
        )
    if name not in LOCAL and name not in SPLITS:
        hint = f"there are {', '.join([*LOCAL, *SPLITS])}"
        raise InputError(f"in {name} a party has no part of a model that stands alone", hint=hint)
    store = Checkpoints(place.home.checkpoints)
    owner = owner_of(federation, party, own, place.base, store.run())
    if not (rounds := store.of_model(owner, place.home.model_record)):
        raise CheckpointError(f"{place.home.checkpoints} holds no whole checkpoint", hint="see --party")
    kept = EncoderFile(place.home.path, begun=True)
    features = load_features(own.data, federation.party_index(party), place.base, TableCache(place.home.path), kept)
    counts = name in LOCAL and federation.protocol.typed  # its part says how many training and test rows a bin has
    if counts:
        features = sampled(features, rows_of_run(federation, place.home, features.ids, party))
    aligned = federation.align != "none"
    rows = len(kept_rows(RunCache(place.home.run_cache), party)) if aligned else len(features.values)
    schedule = Schedule(federation, rows, 0 if aligned else features.official_test)
    device = choose_device("cpu")
    ctx = party_context(
        party, federation, own, features, schedule, base=place.base, device=device, kept=kept, others=not counts
    )
    ctx.state = State(store.load(rounds[0], owner))
    if name in SPLITS:
        splits = SPLITS[name](ctx, federation.protocol)
        return OpenedParty(splits, (len(features.names),), rounds[0], owner.run, kept.read(), features.names)
    local = LOCAL[name](ctx, federation.protocol)
    local.eval()
    return OpenedParty(local, tuple(ctx.features.shape[1:]), rounds[0], owner.run, kept.read(), features.names)


def record_of(config: Config, party: str, opened: OpenedParty) -> dict[str, Any]:
    federation = config.federation
    says = CONTRACTS[federation.protocol.name].exchange.predicts
    inputs: dict[str, Any] = {"columns": list(opened.names)}  # of a forest: as they are in the table
    if isinstance(opened.local, Local) and not isinstance(opened.local, ShapeSum):
        inputs = {
            "shape": ["rows", *opened.shape],
            "dtype": "float32",
            "columns": [name for name, _ in opened.encoder.named(opened.names)],
        }
    return {
        "party": party,
        "federation": federation.id,
        "protocol": federation.protocol.name,
        "run": opened.run,
        "round": opened.round,
        "input": inputs,
        "output": {"what": says, "note": "one part of the joint model: it predicts nothing by itself"},
        "versions": {"colonnade": VERSION, "torch": str(torch.__version__)},
    }
