"""`colonnade export`: a party's part of a model, for use outside Colonnade."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from colonnade.cli.read.export_forest import FILE, party_part
from colonnade.cli.read.export_server import export_server
from colonnade.cli.read.export_shapes import party_shapes
from colonnade.cli.read.exported import NO_NETWORK, ONNX, TRACED, programs_of, write_json, write_part
from colonnade.client.protocols import LOCAL, SPLITS
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local, Splits
from colonnade.client.training.trees.shapes import ShapeSum
from colonnade.common.alignment.record import kept_rows
from colonnade.common.config.members import Config
from colonnade.common.config.pretrained import PretrainedConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.encode import Encoder
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import load_features, prepare_others
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import CheckpointError, InputError, nearest
from colonnade.common.parsing.earlier_defaults import as_begun, load_begun
from colonnade.common.parsing.file import load
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.device import choose_device
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.common.run.state import State
from colonnade.common.version import VERSION
from colonnade.reports.console.screen import out as console


@dataclass(frozen=True)
class ExportPlace:
    """Location of a party's run.

    Args:
        home: the party's own folder.
        base: folder that paths in the config are relative to.
    """

    home: PartyFolder
    config: Config
    base: Path


@dataclass(frozen=True)
class OpenedParty:
    """A party's part of a model.

    Args:
        local: maps rows to outputs, in evaluation mode; or splits of a forest.
        shape: of an input row.
        round: of the checkpoint.
        encoder: maps the party's table to such rows.
        names: of the table's columns.
    """

    local: Local | Splits
    shape: tuple[int, ...]
    round: int
    run: str
    encoder: Encoder
    names: tuple[str, ...]


def export(folder: Path, party: str, file: Path | None, out: Path | None, *, onnx: bool = False) -> None:
    """Writes model.safetensors, model.pt2 and model.json, and a copy of a party's encoder; of a forest forest.json, of
    shapes shapes.json, of a scorecard scorecard.json.

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
    owner = Owner(party, store.run(), federation.lasting_hashes())
    if not (rounds := store.of_model(owner, place.home.model_record)):
        raise CheckpointError(f"{place.home.checkpoints} holds no whole checkpoint", hint="see --party")
    kept = EncoderFile(place.home.path, begun=True)
    features = load_features(own.data, federation.party_index(party), place.base, TableCache(place.home.path), kept)
    typed = federation.protocol.typed
    columns = prepare_others(own.data, features, federation.seed, party, kept, typed=typed)
    aligned = federation.align != "none"
    rows = len(kept_rows(RunCache(place.home.run_cache), party)) if aligned else len(features.values)
    schedule = Schedule(federation, rows, 0 if aligned else features.official_test)
    never: Any = None  # nothing is released here
    state, device = State(store.load(rounds[0], owner)), choose_device("cpu")
    ctx = ClientContext(
        party,
        federation,
        own,
        columns,
        schedule=schedule,
        release=never,
        admit_masked=never,
        base=place.base,
        device=device,
        state=state,
    )
    if name in SPLITS:
        splits = SPLITS[name](ctx, federation.protocol)
        return OpenedParty(splits, (len(features.names),), rounds[0], owner.run, kept.read(), features.names)
    local = LOCAL[name](ctx, federation.protocol)
    local.eval()
    return OpenedParty(local, tuple(columns.shape[1:]), rounds[0], owner.run, kept.read(), features.names)


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
