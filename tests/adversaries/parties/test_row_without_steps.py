"""The epsilon of a row's own embeddings is read as a bound on all that leaves: without `steps` none holds.

Bounds: a row's noise (server).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from colonnade.cli.checks.check import check
from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import Link
from colonnade.common.errors import ConfigError
from colonnade.common.observability.metric import privacy as metrics
from colonnade.common.protocols.split import Embedding
from colonnade.common.run.state import State
from colonnade.reports.card.card import markdown
from colonnade.reports.guarantee import describe_privacy
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.privacy import headline
from colonnade.server.member.summary import protection
from colonnade.simulation.federation import Outcome
from colonnade.simulation.folder import simulate_captured
from tests.support.federation import config, federate, tree

AFE = {"name": "vfl_afe", "embedding": 16}
ROWS = "federation.privacy={mechanism: adaptive, clip: 1, release: positive_sphere, noise_multiplier: 2, delta: 1e-4%s}"
BARE, STEPS = ROWS % "", ROWS % ", steps: {clip: 1}"
SHORT = ("federation.rounds=3", "federation.epochs=0")


def spent(*sets: str) -> dict:
    outcome = federate(config(AFE, *SHORT, *sets))
    return {
        "protocol": "vfl_afe",
        **protection(outcome.server, {name: p.releases for name, p in outcome.privacy.items()}),
    }


def test_a_row_moves_the_embeddings_of_other_rows() -> None:
    """The premise: with the same noise, other features in one row change the embeddings of other rows."""
    cfg = config(AFE, "federation.epochs=3", ROWS % ", seeded: true", "federation.privacy.noise_multiplier=0.05")
    changed = int(Schedule(cfg.federation, 1797, 0).batch(1)[0])

    async def side(ctx: ClientContext, server: Link, protocol: Any) -> None:
        ctx.features.values = ctx.features.values.clone()
        ctx.features.values[changed] += 3.0
        await PARTICIPATE["vfl_afe"](ctx, server, protocol)

    plain, other = (_others(federate(cfg, instead=instead), changed) for instead in ({}, {"party1": side}))
    assert torch.equal(plain[1], other[1])  # before the first step
    assert float((plain[max(plain)] - other[max(other)]).abs().amax()) > 1e-4


def test_the_headline_is_that_there_is_no_guarantee_for_a_row() -> None:
    said = spent(BARE)
    assert set(said["epsilon"].values()) == {None}
    assert said["privacy"]["void"].startswith("no bound for a row")
    assert describe_privacy(said).startswith("no guarantee for a row")
    assert headline(said).startswith("no guarantee for a row")
    assert "epsilon" not in headline(said)
    counted = said["privacy"]["epsilon"]["row"]
    assert all(value > 0 for value in counted.values()) and "held fixed" in said["privacy"]["about"]


def test_with_steps_there_is_one_with_its_delta() -> None:
    said = spent(STEPS)
    assert said["privacy"]["void"] is None and all(value > 0 for value in said["epsilon"].values())
    assert "at delta 0.0001" in describe_privacy(said) and "at delta 0.0001" in headline(said)


def test_no_metric_and_no_line_of_the_ledger_claims_it() -> None:
    cfg = config(AFE, *SHORT, BARE)
    plan = Schedule(cfg.federation, 1797, 0).privacy
    assert plan is not None and not list(metrics(plan, {"party1": 3.0}))
    stage = Privacy("party1", cfg.federation, PolicyConfig(), plan, None).stage(State())
    assert stage(torch.ones(2, 16), evaluation=False, rows=torch.arange(2)).epsilon is None


def test_the_card_does_not_claim_it(tmp_path: Path) -> None:
    cfg = config(AFE, *SHORT, BARE, "every_party.capture={}")
    (tmp_path / "run").mkdir()
    simulate_captured(cfg, tmp_path, tmp_path / "run")
    said = markdown(read_run(tmp_path / "run"))
    assert "no guarantee for a row" in said
    assert all(line.split(" | ")[4] == "no guarantee" for line in said.splitlines() if line.startswith("| party1 |"))


def test_a_policy_about_rows_requires_steps_unless_the_party_waives_it() -> None:
    bare, noisy = (config(AFE, *SHORT, sets).federation for sets in (BARE, STEPS))
    plan = Schedule(bare, 1797, 0).privacy
    strict = PolicyConfig(max_row_epsilon=50, max_delta=1e-4)
    with pytest.raises(ConfigError, match=r"max_row_epsilon = 50.*no federation\.privacy\.steps") as refused:
        Privacy("party1", bare, strict, plan, None)
    assert "row_epsilon_without_steps" in (refused.value.hint or "")
    Privacy("party1", noisy, strict, Schedule(noisy, 1797, 0).privacy, None)
    waived = PolicyConfig(max_row_epsilon=50, max_delta=1e-4, row_epsilon_without_steps="accept")
    Privacy("party1", bare, waived, plan, None)
    with pytest.raises(ConfigError, match=r"max_row_epsilon = 0.1: the federation has \d+ releases"):
        Privacy("party1", bare, waived.model_copy(update={"max_row_epsilon": 0.1}), plan, None)


def _others(outcome: Outcome, row: int) -> dict[int, torch.Tensor]:
    """Party 1's embeddings of all rows but one, by round."""
    batch = outcome.server.schedule.batch
    sent = [m for sender, _, m in outcome.messages if sender == "party1" and isinstance(m, Embedding)]
    return {m.round: m.h[batch(m.round) != row] for m in sent}


def test_check_reports_it_before_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(tree(AFE)))
    for sets, warned in (((), True), (("federation.privacy.steps={clip: 1}",), False)):
        check(file, sets)
        assert ("no bound for a row" in " ".join(capsys.readouterr().out.split())) == warned
