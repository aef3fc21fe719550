"""Every attacker where it must succeed, and where it must not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.config.models import ModelConfig
from colonnade.common.conversation.conversation import Link
from colonnade.common.data.draws import SecretDraws
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.columns.attackers import (
    ATTACKERS,
    COMPONENTS,
    PRODUCTS,
    ROWS,
    SEARCH,
    START,
    knowledge,
    score,
)
from colonnade_lab.attacks.columns.matching import Marginals
from colonnade_lab.attacks.columns.sight import views
from colonnade_lab.attacks.run import AttackedRun, open_run
from lab.tests.attacks.columns_stage import DEEP, LINEAR, distinct, known, secret, sight
from tests.support.household import colonnade

pytestmark = pytest.mark.slow

X = distinct(100, 6)
NARROW = LINEAR.model_copy(update={"embedding": 4})


@pytest.mark.parametrize("attacker", [SEARCH, START])
@pytest.mark.parametrize(("model", "parties"), [(LINEAR, 1), (DEEP, 3)])
def test_public_starts_give_the_rows_away(attacker: str, model: ModelConfig, parties: int) -> None:
    found = ATTACKERS[attacker](sight(X, model, parties=parties), known(X))
    assert found.score.exact > 0.9 and found.score.mean > 0.98 and found.more["fits"]
    assert found.without.mean == pytest.approx(0) and found.without.exact == 0


@pytest.mark.parametrize("attacker", [SEARCH, START])
@pytest.mark.parametrize(("model", "parties"), [(LINEAR, 1), (DEEP, 3)])
def test_other_starts_give_nothing(attacker: str, model: ModelConfig, parties: int) -> None:
    starts = [secret().manual_seed(987_654_321 + k) for k in range(parties)]
    found = ATTACKERS[attacker](sight(X, model, starts, parties=parties), known(X))
    assert found.score.mean == pytest.approx(found.without.mean) and found.score.exact == 0
    assert not found.more["fits"]


def test_a_start_from_a_seed_of_torch_is_found_though_the_agreed_seed_is_another() -> None:
    found = ATTACKERS[SEARCH](sight(X, LINEAR, [torch.Generator().manual_seed(5)]), known(X))
    assert found.score.exact == 1 and not found.more["public"]
    assert ATTACKERS[START](sight(X, LINEAR, [torch.Generator().manual_seed(5)]), known(X)).score.exact == 0


def test_too_few_numbers_a_row_determine_no_row_even_with_a_public_start() -> None:
    model = LINEAR.model_copy(update={"embedding": 2})
    found = ATTACKERS[START](sight(X, model, epochs=1), known(X))
    assert found.score.exact == 0 and found.score.mean < 0.6


def test_gradients_give_rows_up_to_a_rotation_which_marginals_fix() -> None:
    x = distinct(200)
    found = ATTACKERS[PRODUCTS](sight(x, NARROW, [secret()], epochs=8), known(x))
    assert found.more["rotated"]["mean"] > 0.98
    assert found.score.mean > 0.9 and found.without.mean == pytest.approx(0)


def test_without_gradients_there_are_no_products_of_rows() -> None:
    x = distinct(200)
    found = ATTACKERS[PRODUCTS](sight(x, NARROW, [secret()], epochs=8, gradients=False), known(x))
    assert found.more["rotated"]["mean"] < 0.9 and found.score.exact == 0


def test_components_of_a_linear_model_are_matched_to_the_columns_that_are_distributed_like_them() -> None:
    x = distinct(400)
    found = ATTACKERS[COMPONENTS](sight(x, LINEAR, [secret()], epochs=1, gradients=False), known(x))
    assert found.score.mean > 0.7 and min(found.score.r2) > 0.6  # the model moves from batch to batch


def test_columns_that_are_all_normal_have_no_components() -> None:
    x = torch.randn(400, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = ATTACKERS[COMPONENTS](sight(x, LINEAR, [secret()], epochs=1, gradients=False), known(x))
    assert found.score.mean < 0.3 and found.score.exact == 0


def test_as_many_known_rows_as_columns_give_the_others_of_a_linear_model() -> None:
    seen = sight(X, LINEAR, [secret()], epochs=1, gradients=False)
    found = ATTACKERS[ROWS](seen, known(X, have=12))
    assert found.score.mean > 0.9 and found.score.rows == 88 and found.more["known"] == 12
    assert found.without.mean < 0.05


def test_known_rows_say_nothing_of_messages_that_are_noise() -> None:
    seen = sight(torch.randn(100, 6, generator=torch.Generator().manual_seed(9), dtype=torch.float64), LINEAR)
    assert ATTACKERS[ROWS](seen, known(X, have=12)).score.mean < 0.1


def test_scores_are_of_columns_that_vary_about_their_true_mean() -> None:
    truth = torch.tensor([[0.0, 1.0, 5.0], [2.0, 3.0, 5.0]], dtype=torch.float64)
    mean = score(torch.tensor([[1.0, 2.0, 5.0]] * 2, dtype=torch.float64), truth, Marginals.of(truth))
    assert mean.r2 == (0, 0) and mean.exact == 0
    half = score(torch.tensor([[0.019, 1.0, 5.0], [2.0, 3.03, 5.0]], dtype=torch.float64), truth, Marginals.of(truth))
    assert half.exact == 0.5 and half.rows == 2


_DATA = {"source": "sklearn", "name": "breast_cancer"}


async def secretly(ctx: ClientContext, link: Link, cfg: Any) -> None:
    ctx.draws = SecretDraws.fresh(ctx.name)
    await PARTICIPATE[cfg.name](ctx, link, cfg)


def run(folder: Path, *, secret: bool, **protocol: Any) -> AttackedRun:
    """Three parties of ten columns each, at the defaults but for rounds."""
    tree = {
        "federation": {"id": "columns", "protocol": protocol, "parties": 3, "classes": 2, "batch": 32, "rounds": 2,
                       "epochs": 0, "seed": 1},
        "server": {"labels": _DATA},
        "every_party": {"data": {**_DATA, "split": "columns"}, "capture": {}},
    }  # fmt: skip
    config = parse(tree, ())
    instead = dict.fromkeys(config.federation.names, secretly) if secret else {}
    simulate_captured(config, folder, folder, instead=instead)
    return open_run(folder)


def test_blinded_sums_of_public_starts_give_rows_away_and_of_secret_ones_do_not(tmp_path: Path) -> None:
    for hidden in (False, True):
        attacked = run(tmp_path / str(hidden), secret=hidden, name="split_avg", aggregate="blinded")
        ((name, sight),) = views(attacked, attacked.captured).items()
        first = sight.first(1)
        assert name == "all" and first.columns == 30 and len(first.rows) == 32
        known = knowledge(attacked, first, 0.01, 2, 0)
        for attacker in (SEARCH, START):
            found = ATTACKERS[attacker](first, known)
            if hidden:
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
