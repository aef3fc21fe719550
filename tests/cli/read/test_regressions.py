"""Exported parts of a regression."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.cli.read.export import export
from colonnade.client.protocols.hetero_lr import model_of
from colonnade.client.training.context import ClientContext
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import encoding, load_features
from colonnade.common.parsing.file import parse
from colonnade.reports.explanation.write import write_explanation
from colonnade.simulation.federation import Simulation
from tests.cli.read.test_explain import leave_behind
from tests.cli.read.test_forests import tables


def test_the_exported_parts_predict_what_the_run_predicts(tmp_path: Path) -> None:
    """By the programs, and by the coefficients beside the encoded columns' names."""
    tables(tmp_path)
    data: dict[str, Any] = {"source": "csv", "id": "id", "missing": "mean", "unseen": "zero"}
    cfg = parse({
        "federation": {
            "id": "loans", "parties": ["shop", "bank"], "classes": 2, "rounds": 20, "batch": 64, "stop": "none",
            "protocol": {"name": "hetero_lr", "aggregate": "clear"}, "rows": {"test": 0.3, "validation": 0.1},
        },
        "server": {"labels": {"source": "csv", "path": str(tmp_path / "server.csv"), "id": "id", "label": "late"}},
        "parties": {name: {"data": {**data, "path": str(tmp_path / f"{name}.csv")}} for name in ("shop", "bank")},
    })  # fmt: skip
    outcome = Simulation(cfg, base=tmp_path, save=True).run()
    run = leave_behind(tmp_path / "run", cfg, outcome)
    total = np.zeros(len(outcome.server.labels))
    for name, party in cfg.parties.items():
        features = load_features(party.data, cfg.federation.party_index(name), tmp_path)
        kept, train = EncoderFile(run / "parties" / name, begun=False), outcome.server.schedule.partition.train
        kept.get(encoding(party.data), features, train)
        into = tmp_path / name
        export(run, name, None, into)
        record, encoded = json.loads((into / "model.json").read_text()), outcome.clients[name].features.values
        assert len(record["input"]["columns"]) == len(record["coefficients"]) == encoded.shape[1]
        values, steps = encoded.double().numpy(), np.array(record["multiples"])
        rounded = np.where(steps > 0, np.round(values / np.where(steps > 0, steps, 1)) * steps, values)
        assert (rounded != values).any(axis=0).tolist() == (steps > 0).tolist()
        by_hand = (rounded - record["means"]) @ np.array(record["coefficients"])
        by_program = torch.export.load(into / "model.pt2").module()(encoded).numpy()
        np.testing.assert_allclose(by_program, by_hand, atol=1e-6)
        explained_by_its_columns(outcome.clients[name], by_program[:, 0], record)
        total += by_program[:, 0]
    export(run, "server", None, tmp_path / "server")
    start = json.loads((tmp_path / "server" / "model.json").read_text())["start"]
    expected = (outcome.server.state["start"] + outcome.server.state["scores"])[:, 0].numpy()
    np.testing.assert_allclose(total + start[0], expected, atol=1e-4)
    write_explanation(run, tmp_path / "explained")
    own = json.loads((tmp_path / "explained" / "parties" / "shop" / "explain.json").read_text())
    assert {one["column"] for one in own["columns"]} == {"age", "colour"}
    assert [one["importance"] for one in own["columns"]] == sorted(
        (o["importance"] for o in own["columns"]), reverse=True
    )
    assert not any(word in (tmp_path / "explained" / "explain.json").read_text() for word in ("colour", "green"))


def explained_by_its_columns(ctx: ClientContext, logits: NDArray[np.float32], record: dict[str, Any]) -> None:
    """What columns add is 0 on average and the logit in sum; reasons are the lowest of it; words are one column."""
    model, rows, train = model_of(ctx), torch.arange(len(logits)), ctx.schedule.partition.train
    parts = model.parts(ctx.features, rows)[:, :, 0]
    names = list(dict.fromkeys(name.split("=")[0].removesuffix(" missing") for name in record["input"]["columns"]))
    assert parts.shape[1] == len(names) < len(record["coefficients"]) or ctx.name == "bank"
    np.testing.assert_allclose(parts.sum(axis=1), logits, atol=1e-5)
    np.testing.assert_allclose(parts[train].mean(axis=0), 0, atol=1e-9)
    for line, reasons in zip(parts, model.reasons(ctx, rows, most=1), strict=True):
        assert reasons == [(names[line.argmin()], line.min())] * int(line.min() < 0)
    assert all(points <= 0 for below in model.reasons(ctx, train, reference="best") for _, points in below)
