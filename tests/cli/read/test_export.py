"""`colonnade export`: the file is the party's model, and runs without Colonnade."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
import yaml
from onnxruntime import InferenceSession
from safetensors.torch import load_file

from colonnade.cli.read.export import export
from colonnade.common.data.sources import load_features
from colonnade.common.errors import InputError
from colonnade.reports.explanation.trained import open_run
from tests.cli.read.test_explain import leave_behind
from tests.support.federation import config, federate
from tests.support.household import colonnade
from tests.support.tables import table_tree, write_tables

pytestmark = pytest.mark.slow

PROTOCOLS = [{"name": name} for name in ("vimadmm_j", "fedvs", "agg_vfl", "linear_admm")]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol["name"])
def test_the_program_computes_what_the_party_side_sent(protocol: dict[str, str], tmp_path: Path) -> None:
    cfg = config(protocol, "federation.rounds=2", "federation.epochs=0")
    outcome = federate(cfg, save=True)
    run = leave_behind(tmp_path / "run", cfg, outcome)
    home, ctx = run / "parties" / "party2", outcome.clients["party2"]
    features = load_features(cfg.parties["party2"].data, cfg.federation.party_index("party2"), tmp_path)
    export(run, "party2", None, None)
    from colonnade.client.protocols import LOCAL

    local = LOCAL[protocol["name"]](ctx, ctx.federation.protocol)
    local.eval()
    program = torch.export.load(home / "export" / "model.pt2").module()
    for rows in (torch.tensor([3]), torch.arange(100)):
        x = ctx.features[rows]
        with torch.no_grad():
            torch.testing.assert_close(program(x), local(x))
    weights = load_file(home / "export" / "model.safetensors")
    assert weights.keys() == local.state_dict().keys()
    record = json.loads((home / "export" / "model.json").read_text())
    assert record["round"] == outcome.server.round and len(record["input"]["columns"]) == features.values[0].numel()
    for name, digest in record["sha256"].items():
        assert hashlib.sha256((home / "export" / name).read_bytes()).hexdigest() == digest


HEADS = [
    {"name": "split", "embedding": 8}, {"name": "vimadmm", "embedding": 8},
    {"name": "vimadmm", "embedding": 8, "head": {"name": "mlp"}}, {"name": "vimadmm_j"},
]  # fmt: skip


@pytest.mark.parametrize("protocol", HEADS, ids=lambda protocol: "-".join(map(str, protocol)) + protocol["name"])
def test_the_servers_program_is_its_part_of_the_trained_model(protocol: dict[str, object], tmp_path: Path) -> None:
    """With the parties' own parts before it, it comes to what the run's model says of any number of rows."""
    cfg = config(protocol, "federation.rounds=3", "federation.epochs=0")
    outcome = federate(cfg, save=True)
    run = leave_behind(tmp_path / "run", cfg, outcome)
    export(run, "server", None, None)
    trained = open_run(run)
    program = torch.export.load(run / "export" / "model.pt2").module()
    for rows in (torch.tensor([3]), torch.arange(50)):
        with torch.no_grad():
            parts = [trained.locals[name](ctx.features[rows]) for name, ctx in trained.clients.items()]
            torch.testing.assert_close(program(torch.stack(parts)), trained.joint.logits(parts))
    record = json.loads((run / "export" / "model.json").read_text())
    assert record["input"]["parties"] == list(cfg.federation.names) and record["round"] == 3
    assert record["input"]["shape"] == ["parties", "rows", parts[0].shape[1]] and record["output"]["what"] == "logits"
    weights = load_file(run / "export" / "model.safetensors")
    assert {name.partition(".")[0] for name in weights} == {
        name for name in ("head", "heads", "weights") if name in outcome.server.state
    }
    for name, digest in record["sha256"].items():
        assert hashlib.sha256((run / "export" / name).read_bytes()).hexdigest() == digest
    assert (run / "export" / "model.safetensors").stat().st_mode & 0o077 == 0


def test_programs_for_onnx_compute_the_same(tmp_path: Path) -> None:
    cfg = config({"name": "split", "embedding": 8}, "federation.epochs=1")
    outcome = federate(cfg, save=True)
    run = leave_behind(tmp_path / "run", cfg, outcome)
    features = load_features(cfg.parties["party2"].data, cfg.federation.party_index("party2"), tmp_path)
    for member, shape in (("party2", (9, *features.values.shape[1:])), ("server", (len(cfg.federation.names), 9, 8))):
        export(run, member, None, tmp_path / member, onnx=True)
        program = torch.export.load(tmp_path / member / "model.pt2").module()
        values = torch.randn(shape)
        (said,) = InferenceSession(tmp_path / member / "model.onnx").run(None, {"input": values.numpy()})
        torch.testing.assert_close(torch.from_numpy(said), program(values))
        assert "model.onnx" in json.loads((tmp_path / member / "model.json").read_text())["sha256"]


def test_a_party_of_tables_exports_its_part_with_the_encoder(tmp_path: Path) -> None:
    write_tables(tmp_path)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(table_tree(epochs=1)))
    code, output = colonnade("up", tmp_path / "federation.yaml", "--out", tmp_path / "run")
    assert code == 0, output
    export(tmp_path / "run", "party1", None, tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        "model.safetensors", "model.pt2", "model.json", "encoder.json",
    }  # fmt: skip
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    assert record["input"]["columns"] == ["c0", "c1", "c2"] and record["output"]["what"] == "embedding"


def test_a_refused_export_gives_its_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        export(tmp_path, "party1", None, None)
    cfg = config({"name": "centralized"}, "federation.epochs=1")
    run = leave_behind(tmp_path / "run", cfg, federate(cfg, save=True))
    with pytest.raises(InputError, match="no party 'party9'"):
        export(run, "party9", None, None)
    with pytest.raises(InputError, match="stands alone"):
        export(run, "party1", None, None)
    with pytest.raises(InputError, match="in centralized the server has no part of a model that stands alone"):
        export(run, "server", None, None)
    assert not (run / "export").exists()
