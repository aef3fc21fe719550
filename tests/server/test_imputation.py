"""Imputation of absent parties."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.sources import load_labels
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.training.context import MEANS, ServerContext
from colonnade.server.training.imputation import How, StandIn, Standing
from tests.support.federation import config

BATCH = torch.tensor([4, 0, 9])


def context() -> ServerContext:
    cfg = config({"name": "split"}, "federation.parties=[ada, bob]", "federation.rounds=5", "federation.epochs=0")
    assert cfg.server is not None
    labels = load_labels(cfg.server.labels, Path())
    schedule = Schedule(cfg.federation, len(labels.values), 0)
    return ServerContext(cfg.federation, cfg.server, labels.values, schedule, Telemetry())


def imputation(how: How, ctx: ServerContext | None = None) -> StandIn:
    return StandIn(ctx or context(), ("ada", "bob"), 2, how)


def said(value: float) -> torch.Tensor:
    return torch.full((3, 2), float(value))


def values(parts: list[torch.Tensor] | None) -> list[float]:
    assert parts is not None and all(part.shape == (3, 2) for part in parts)
    return [float(part.unique()) for part in parts]


@pytest.mark.parametrize("how", ["zero", "last", "skip"])
def test_a_present_party_is_not_imputed(how: How) -> None:
    assert values(imputation(how).fill({"bob": said(2), "ada": said(1)}, BATCH, 1)) == [1, 2]


def test_zeros_for_missing_parties() -> None:
    there = imputation("zero")
    there.fill({"ada": said(1), "bob": said(2)}, BATCH, 1)
    assert values(there.fill({"ada": said(3)}, BATCH, 2)) == [3, 0]


def test_the_last_embeddings_of_the_same_rows() -> None:
    there = imputation("last")
    there.fill({"ada": said(1), "bob": said(2)}, BATCH, 1)
    assert values(there.fill({"ada": said(3)}, BATCH, 2)) == [3, 2]
    assert values(there.fill({"ada": said(3)}, torch.tensor([1, 2, 3]), 3)) == [3, 0]
    assert values(there.fill({"bob": said(5)}, BATCH, 4)) == [3, 5]


def test_an_embedding_of_zeros_was_sent_all_the_same() -> None:
    ctx = context()
    there = imputation("last", ctx)
    ctx.state.keep(MEANS, dict)["ada"] = torch.ones(2)
    there.fill({"ada": said(0), "bob": said(2)}, BATCH, 1)
    instead = Standing(ctx, ("ada",), historical=True).of("ada", torch.tensor([4, 1]))
    assert instead.tolist() == [[0, 0], [1, 1]]


def test_the_last_embeddings_outlive_a_restart() -> None:
    ctx = context()
    imputation("last", ctx).fill({"ada": said(1), "bob": said(2)}, BATCH, 1)
    again = context()
    again.restore(1, ctx.state.capture())
    assert values(imputation("last", again).fill({"ada": said(3)}, BATCH, 2)) == [3, 2]


def test_a_round_is_left_out_if_someone_is_missing_but_not_the_last() -> None:
    there = imputation("skip")
    assert there.fill({"ada": said(1)}, BATCH, 4) is None
    assert values(there.fill({"ada": said(1)}, BATCH, 5)) == [1, 0]


@pytest.mark.parametrize("how", ["zero", "last", "skip"])
def test_a_round_without_responses_is_skipped(how: How) -> None:
    assert imputation(how).fill({}, BATCH, 5) is None
