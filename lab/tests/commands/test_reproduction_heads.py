"""Norms of heads in the record of a run: Figure 3 of Xie et al. 2024."""

from __future__ import annotations

import math

from colonnade_lab.papers.measures import RunRecord, unit, value
from colonnade_lab.papers.papers import PaperRun
from colonnade_lab.papers.running import Job, perform

PARTIES = [f"party{number}" for number in range(1, 5)]


def record(file: str, rate: float) -> RunRecord:
    """Of one round in which the server's optimiser has this rate, and no weight decay."""
    optimiser = f"server.optimiser={{name: sgd, lr: {rate}, momentum: 0, weight_decay: 0}}"
    sets = ("federation.epochs=0", "federation.rounds=1", optimiser)
    return perform(Job("paper", "run", PaperRun(file=file, set=sets, minutes=0.1), 0))


def test_a_record_has_the_norm_of_every_head_and_its_growth() -> None:
    unmoved, moved = record("vimadmm/demo.yaml", 1e-12), record("vimadmm/demo.yaml", 0.1)
    assert [value(unmoved, f"growth@{party}") for party in PARTIES] == [100.0] * 4
    assert len({value(unmoved, f"norm@{party}") for party in PARTIES}) == 4
    for party in PARTIES:
        growth = value(moved, f"growth@{party}")
        assert growth != 100
        assert math.isclose(growth, 100 * value(moved, f"norm@{party}") / value(unmoved, f"norm@{party}"), rel_tol=1e-4)
    assert unit("norm@party1") == "" and unit("growth@party1") == "%"


def test_one_head_over_all_embeddings_has_no_norm_of_a_party() -> None:
    assert math.isnan(value(record("split/demo.yaml", 0.1), "norm@party1"))
