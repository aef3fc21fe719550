"""Labels from first gradients: by a party that can draw the server's first head again, and by one that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.data.draws import SecretDraws
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.first_head import name_labels
from colonnade_lab.attacks.run import AttackedRun, open_run
from lab.tests.attacks.stage import captured
from tests.support.federation import config

pytestmark = pytest.mark.slow

PROTOCOLS = [
    {"name": "split", "embedding": 12},
    {"name": "split_avg", "embedding": 12},
    {"name": "split_avg", "embedding": 12, "aggregate": "blinded"},
]
ONE = ("federation.rounds=2", "federation.epochs=0", "federation.batch=100", "federation.public_start=true")


async def secretly(ctx: ServerContext, clients: Cohort, cfg: Any) -> None:
    ctx.draws = SecretDraws.fresh(ctx.federation.id)
    await SERVE[cfg.name](ctx, clients, cfg)


def of_secret_head(folder: Path, protocol: dict[str, Any], *sets: str) -> AttackedRun:
    cfg = config(protocol, "every_party.capture={}", *ONE, *sets)
    simulate_captured(cfg, folder, folder, instead={SERVER: secretly})
    return open_run(folder)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_public_head_gives_the_first_batch_s_labels_away(tmp_path: Path, protocol: dict[str, Any]) -> None:
    found = name_labels(captured(tmp_path, protocol, *ONE), "party2")
    assert found is not None and found.rows == 100 and found.first == 1 and found.chance < 0.2


def test_so_does_a_public_head_that_bends(tmp_path: Path) -> None:
    head = "server.head={name: mlp, dropout: 0}"
    found = name_labels(captured(tmp_path / "clear", PROTOCOLS[0], *ONE, head), "party2")
    assert found is not None and found.first > 0.8
    assert name_labels(captured(tmp_path / "blinded", PROTOCOLS[2], *ONE, head), "party2") is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_secret_head_does_not(tmp_path: Path, protocol: dict[str, Any]) -> None:
    """One draw names most rows of a class alike, rightly or wrongly: chance is the mean over draws."""
    run = of_secret_head(tmp_path, protocol)
    tried = [None, *(torch.Generator().manual_seed(seed) for seed in range(30))]
    every = [name_labels(run, "party2", start) for start in tried]
    shares = [one.first for one in every if one is not None]
    assert len(shares) == 31 and shares[0] < 0.7
    assert sum(shares) / len(shares) < 0.2
