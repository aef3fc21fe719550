"""The attackers on captured runs: of sums and of embeddings, with public starts and with secret ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.data.draws import SecretDraws
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.columns.attackers import ATTACKERS, PRODUCTS, SEARCH, START, knowledge
from colonnade_lab.attacks.columns.sight import views
from colonnade_lab.attacks.run import AttackedRun, open_run
from tests.support.household import colonnade

pytestmark = pytest.mark.slow

_DATA = {"source": "sklearn", "name": "breast_cancer"}


async def secretly(ctx: ClientContext, link: Link, cfg: Any) -> None:
    ctx.draws = SecretDraws.fresh(ctx.name)
    await PARTICIPATE[cfg.name](ctx, link, cfg)


def run(folder: Path, *, secret: bool, **protocol: Any) -> AttackedRun:
    """Three parties of ten columns each, at the defaults but for rounds."""
    tree = {
        "federation": {"id": "columns", "protocol": protocol, "parties": 3, "classes": 2, "batch": 32, "rounds": 2,
                       "epochs": 0, "seed": 3},
        "server": {"labels": _DATA},
        "every_party": {"data": {**_DATA, "split": "columns"}, "capture": {}},
    }  # fmt: skip
    config = parse(tree, ())
    instead = dict.fromkeys(config.federation.names, secretly) if secret else {}
    simulate_captured(config, folder, folder, instead=instead)
    return open_run(folder)


def test_blinded_sums_of_public_starts_give_rows_away_and_of_secret_ones_do_not(tmp_path: Path) -> None:
    for secret in (False, True):
        attacked = run(tmp_path / str(secret), secret=secret, name="split_avg", aggregate="blinded")
        ((name, sight),) = views(attacked, attacked.captured).items()
        first = sight.first(1)
        assert name == "all" and first.columns == 30 and len(first.rows) == 32
        known = knowledge(attacked, first, 0.01, 5, 0)
        for attacker in (SEARCH, START):
            found = ATTACKERS[attacker](first, known)
            if secret:
                assert found.score.mean == pytest.approx(0, abs=1e-6) and not found.more["fits"]
            else:
                assert found.score.exact > 0.6 and found.score.mean > 0.9


def test_the_command_attacks_every_party_whose_embeddings_are_in_the_clear(tmp_path: Path) -> None:
    run(tmp_path, secret=False, name="split", embedding=20)
    code, told = colonnade("attack", tmp_path, "--kind", "columns", "--starts", 3, "--attacker", "known-start")
    assert code == 0, told
    kept = json.loads((tmp_path / "attacks" / "columns.json").read_text())
    assert set(kept["seen"]) == {"party1", "party2", "party3"} and kept["start"] == "seeded"
    found = kept["seen"]["party2"]["attackers"]["known-start"]
    assert len(found["score"]["r2"]) == 10 and found["without"]["mean"] == pytest.approx(0, abs=1e-6)


def test_what_cannot_be_attacked_is_refused(tmp_path: Path) -> None:
    attacked = run(tmp_path, secret=False, name="split_avg", aggregate="blinded")
    with pytest.raises(InputError, match="sums over all parties"):
        views(attacked, ("party1",))
    code, told = colonnade("attack", tmp_path, "--kind", "columns", "--attacker", "product")
    assert code == 2 and PRODUCTS in told
