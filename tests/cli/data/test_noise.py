"""`check` says before a run that the noise leaves nothing to learn from."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from colonnade.cli.checks.privacy import drowned, noise_over_values
from colonnade.common.contracts.schedule import Schedule
from colonnade.simulation.federation import Simulation
from tests.support.federation import config

ROW = "{mechanism: adaptive, clip: 1, epsilon: EPSILON, delta: 1.0e-4, steps: {clip: 1}}"
WHOLE = "{mechanism: gaussian, clip: 1, epsilon: EPSILON, delta: 1.0e-4}"


def said(privacy: str, epsilon: float) -> str:
    cfg = config({"name": "split", "embedding": 16}, f"federation.privacy={privacy.replace('EPSILON', str(epsilon))}")
    return drowned(cfg.federation, Schedule(cfg.federation, 1797, 0))


@pytest.mark.parametrize(("privacy", "what"), [(ROW, "a row's embedding"), (WHOLE, "a message")])
def test_epsilon_8_on_a_small_table_is_warned_of(privacy: str, what: str) -> None:
    text = said(privacy, 8)
    assert f"times as large as {what} may be" in text and "at chance" in text


def test_little_noise_and_none_are_not_warned_of() -> None:
    assert said(ROW, 512) == ""
    plain = config({"name": "split", "embedding": 16}).federation
    assert drowned(plain, Schedule(plain, 1797, 0)) == ""


@pytest.mark.parametrize("privacy", [ROW, WHOLE])
def test_the_ratio_is_that_of_what_is_sent(privacy: str) -> None:
    """With much noise, messages are noise alone: their norm in units of `clip` is the ratio."""
    sets = (f"federation.privacy={privacy.replace('EPSILON', '0.5')}", "federation.epochs=1")
    cfg = config({"name": "split", "embedding": 16}, *sets)
    simulation = Simulation(cfg, Path(), record=True)
    outcome = simulation.run()
    plan = outcome.server.schedule.privacy
    assert plan is not None
    sent = next(message.h for sender, _, message in outcome.messages if sender == "party1")
    per_message = float(torch.linalg.vector_norm(sent))
    per_row = per_message / math.sqrt(len(sent))
    expected = noise_over_values(plan, len(sent), 16)
    assert (per_row if plan.strict == "row" else per_message) == pytest.approx(expected, rel=0.15)
