"""A party that answers a prediction with outputs of its own choice: rows that it lies about are predicted falsely.

Nothing compares an output with the party's model. The scenes show that no other row's prediction changes.

Bounds: predictions (party).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.aggregation.messages import Masked
from colonnade.common.contracts.prediction import Output
from colonnade.simulation.federation import Outcome
from tests.protocols.test_prediction import ask
from tests.support.federation import config, federate

LIAR, ROWS, FALSE = "party2", torch.arange(20), 4
PROTOCOLS: dict[str, dict[str, Any]] = {
    "in the clear": {"name": "split"},
    "blinded": {"name": "split_avg", "embedding": 8, "aggregate": "blinded"},
}


@cache
def trained(how: str) -> tuple[Any, Outcome]:
    cfg = config(PROTOCOLS[how], "federation.rounds=3", "federation.epochs=0", "federation.batch=200")
    return cfg, federate(cfg)


def lying(values: Tensor, *, to_words: bool) -> Any:
    """Adds values to one row of the party's answer; to its words, if they are blinded, as many of their steps."""

    def spoil(cohort: Any, _links: Any) -> None:
        deliver = cohort[LIAR].deliver

        def false(item: Any) -> None:
            kind, name = (Masked, "words") if to_words else (Output, "h")
            if isinstance(item, kind):
                told = getattr(item, name).clone()
                told[FALSE] = told[FALSE] + values.to(told.dtype)
                item = replace(item, **{name: told})
            deliver(item)

        cohort[LIAR].deliver = false

    return spoil


@pytest.mark.parametrize("how", PROTOCOLS)
def test_the_rows_that_it_lies_about_are_predicted_falsely_and_no_others(how: str) -> None:
    cfg, outcome = trained(how)
    blinded = how == "blinded"
    (true,) = ask(cfg, outcome, ROWS)
    (told,) = ask(cfg, outcome, ROWS, spoil=lying(torch.tensor(2**28 if blinded else 5.0), to_words=blinded))
    others = ROWS != FALSE
    assert torch.equal(told[others], true[others]) and not torch.allclose(told[FALSE], true[FALSE], atol=0.1)
