"""The server as the active party: its section, its columns and its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.run.state import State
from colonnade.launcher.readiness import refuse_tables
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import active_party, load_columns
from colonnade.simulation.contexts import client_context, server_context
from colonnade.simulation.federation import Simulation
from tests.support.federation import config, tree

AGG = {"name": "agg_vfl", "embedding": 16}


def context(*sets: str) -> ServerContext:
    return server_context(config(AGG, *sets), Path(), Telemetry())


def flat(module: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def test_an_active_party_without_columns_is_refused() -> None:
    without = tree(AGG)
    del without["server"]["active"]
    with pytest.raises(ConfigError, match=r"^server\.active: missing, and in agg_vfl the server has columns") as found:
        parse(without)
    assert "server.active.data" in found.value.hint


def test_columns_of_a_server_without_a_part_in_the_model_are_refused() -> None:
    given = tree({"name": "split"})
    given["server"]["active"] = tree(AGG)["server"]["active"]
    with pytest.raises(ConfigError, match=r"^server\.active: in split the server has no columns of its own") as found:
        parse(given)
    assert "agg_vfl, local" in found.value.hint


def test_a_party_needs_no_section_of_the_server() -> None:
    alone = tree(AGG)
    del alone["server"]
    assert parse(alone).server is None


def test_the_active_party_has_index_0() -> None:
    federation = config(AGG).federation
    assert federation.party_index(SERVER) == PartyIndex(0, 5)
    assert [federation.party_index(name) for name in federation.names] == [PartyIndex(k, 5) for k in (1, 2, 3, 4)]
    passive = config({"name": "split"}).federation
    assert [passive.party_index(name) for name in passive.names] == [PartyIndex(k, 4) for k in range(4)]


def test_every_column_belongs_to_one_member() -> None:
    cfg = config(AGG, "server.active.data.scale=none", "every_party.data.scale=none")
    server, rows = server_context(cfg, Path(), Telemetry()), torch.arange(20)
    parties = [client_context(cfg, name, Path()) for name in cfg.federation.names]
    whole = server_context(
        config(AGG, "server.active.data.split=all", "server.active.data.scale=none"), Path(), Telemetry()
    )
    assert server.columns is not None and whole.columns is not None
    joined = torch.cat([server.columns[rows], *(ctx.features[rows] for ctx in parties)], 1)
    assert torch.equal(joined, whole.columns[rows].flatten(1))


def test_columns_are_scaled_by_the_training_rows_alone() -> None:
    ctx = context("server.active.data.scale=standard")
    assert ctx.columns is not None
    trained = ctx.columns[ctx.schedule.partition.train]
    moving = trained.std(0) > 0
    torch.testing.assert_close(trained.mean(0), torch.zeros(13), atol=1e-4, rtol=0)
    torch.testing.assert_close(trained.std(0, correction=0)[moving], torch.ones(int(moving.sum())), atol=1e-4, rtol=0)


def test_a_server_without_columns_loads_none() -> None:
    ctx = server_context(config({"name": "split"}), Path(), Telemetry())
    assert ctx.columns is None
    assert load_columns(ctx.federation, ctx.config, ctx.schedule, Path(), len(ctx.labels)) is None


def test_columns_of_other_rows_than_the_labels_are_refused() -> None:
    said = r"^server\.active\.data has 569 rows, the labels have 1797"
    with pytest.raises(DataError, match=said) as found:
        context("server.active.data.name=breast_cancer")
    assert "join the two tables by their key into one file" in found.value.hint


def test_the_model_makes_embeddings_of_the_agreed_width() -> None:
    ctx = context("server.active.model=linear")
    assert ctx.config.active is not None and ctx.config.active.model.embedding == 16
    own = active_party(ctx, 16)
    assert own.embed(ctx.columns[torch.arange(3)]).shape == (3, 16)
    assert own.predict(torch.zeros(3, 16)).shape == (3, 10)
    other = context("server.active.model={name: linear, embedding: 12}")
    with pytest.raises(ConfigError, match=r"^server\.active\.model makes 12 numbers of a row, .* takes 16"):
        active_party(other, 16)


def test_an_error_of_the_model_names_its_member() -> None:
    with pytest.raises(ConfigError, match=r"^server\.active\.model: "):
        active_party(context("server.active.model=lenet"), 16)  # rows are 13 columns


def test_its_learned_model_outlives_a_restart() -> None:
    ctx = context("server.active.optimiser={name: adam}")
    rows, dr = torch.arange(30), torch.randn(30, 10)
    own = active_party(ctx, 16)
    own.predict(own.embed(ctx.columns[rows]))
    own.learn(dr)
    again = replace(ctx, state=State(ctx.state.capture()))
    for here in (ctx, again):
        same = active_party(here, 16)
        same.predict(same.embed(here.columns[rows]))
        same.learn(dr)
    for name in ("active model", "head"):
        assert torch.equal(flat(ctx.state[name]), flat(again.state[name]))
        assert not torch.equal(flat(ctx.state[name]), flat(begun(name)))


def begun(name: str) -> nn.Module:
    ctx = context()
    active_party(ctx, 16)
    module: nn.Module = ctx.state[name]
    return module


def test_equal_models_do_not_start_equal() -> None:
    """Columns are not divided, so that the models have equal shapes."""
    cfg = config(AGG, "server.active.data.split=all", "every_party.data.split=all")
    server = server_context(cfg, Path(), Telemetry())
    active_party(server, 16)
    parties = [client_context(cfg, name, Path()) for name in cfg.federation.names]
    models = [server.state["active model"], *(ctx.model(16) for ctx in parties)]
    heads = [server.state["head"], *(ctx.head(16) for ctx in parties)]
    for modules in (models, heads):
        assert len({tuple(flat(module).tolist()) for module in modules}) == 5


@pytest.mark.parametrize("drop", [["a"], ["label"]])
@pytest.mark.parametrize("section", ["server.active", "parties.bank"])
def test_the_label_is_no_feature(tmp_path: Path, section: str, drop: list[str]) -> None:
    plain = table_with_labels(tmp_path)
    sections = {"server.active": {"columns": ["a"]}, "parties.bank": {"columns": ["b"]}, section: {"drop": drop}}
    active, bank = ({"data": plain | more} for more in sections.values())
    bank["data"]["path"] = str(tmp_path / "all.csv")
    protocol = {"name": "agg_vfl", "embedding": 2}
    agreed = {"id": "t", "protocol": protocol, "parties": ["bank"], "classes": 2, "batch": 8, "rounds": 1}
    server = {"labels": plain | {"label": "label"}, "active": active}
    simulation = Simulation(parse({"federation": agreed, "server": server, "parties": {"bank": bank}}), tmp_path)
    if drop == ["label"]:
        assert simulation.run().status == "completed"
        return
    with pytest.raises(DataError, match=rf"{section}\.data: its table is .*'label', the label, would") as refused:
        simulation.run()
    assert "`drop: [label]`" in refused.value.hint


@pytest.mark.parametrize("drop", [["a"], ["label"], ["label", "w"]])
def test_the_weight_is_no_feature(tmp_path: Path, drop: list[str]) -> None:
    plain = table_with_labels(tmp_path)
    protocol = {"name": "hetero_lr", "aggregate": "clear"}
    agreed = {"id": "t", "protocol": protocol, "parties": ["bank"], "classes": 2, "batch": 8, "rounds": 1}
    server = {"labels": plain | {"label": "label", "weight": "w"}}
    given = parse({"federation": agreed, "server": server, "parties": {"bank": {"data": plain | {"drop": drop}}}})
    if len(drop) == 2:
        refuse_tables(given, tmp_path)
        return
    with pytest.raises(DataError, match="would be a feature") as refused:
        refuse_tables(given, tmp_path)
    assert ("w]`" if drop == ["label"] else "`drop: [label, w]`") in refused.value.hint


def table_with_labels(folder: Path) -> dict[str, str]:
    rows = "".join(f"k{row},{row % 2},1,{row * 7 % 11},{row * 5 % 13}\n" for row in range(40))
    (folder / "all.csv").write_text("id,label,w,a,b\n" + rows)
    return {"source": "csv", "path": "all.csv", "key": "id"}
