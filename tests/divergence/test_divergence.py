"""Runs that diverge by their settings: warnings, the member that is named, and runs that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.config.members import Config
from colonnade.common.contracts.embeddings import Embedding
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import TrainingDiverged
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from tests.support.federation import config

ROOT = Path(__file__).parents[2]
SPLIT = {"name": "split", "embedding": 60}
VIMADMM = {"name": "vimadmm", "embedding": 60}


def run(cfg: Config, **more: Any) -> tuple[list[Event], TrainingDiverged | None]:
    """Every event of a run, and the error of its divergence."""
    events: list[Event] = []
    try:
        Simulation(cfg, telemetry=Telemetry(None, events.append), **more).run()
    except TrainingDiverged as diverged:
        return events, diverged
    return events, None


def growths(events: list[Event]) -> list[Event]:
    return [event for event in events if event["kind"] == "warning" and "grows" in event]


def test_rates_of_50_at_all_parties_are_warned_of_once_before_the_end() -> None:
    events, error = run(config(SPLIT, "every_party.optimiser.lr=50", "federation.epochs=20"))
    (warning,) = growths(events)
    assert warning["party"].startswith("party") and warning["grows"] == "its Embedding.h"
    assert warning["since"] <= warning["round"] and warning["factor"] >= 30
    assert error is not None and set(error.members) >= {"party2", "party3"} and "server" not in error.members
    (told,) = [event for event in events if event["kind"] == "diverged"]
    assert told["party"] == error.member and told["round"] > warning["round"] + 2


def test_one_party_with_a_huge_rate_is_named_and_nobody_else() -> None:
    rates = ("every_party.optimiser.lr=0.1", "parties.party3.optimiser.lr=1000")
    events, error = run(config(SPLIT, *rates))
    assert error is not None and error.members == ("party3",)
    assert str(error).startswith("party3 diverged by round") and "its Embedding.h has grown" in str(error)
    assert error.hint.startswith("lower parties.party3.optimiser.lr to a third")
    assert "(the defaults of split: adamw with lr 0.002 at all members)" in error.hint
    assert [event["party"] for event in growths(events)] == ["party3"]


def test_a_server_whose_head_diverges_is_named() -> None:
    events, error = run(config(SPLIT, "server.optimiser.lr=1e6", "every_party.model=linear"))
    assert error is not None and error.members == ("server",) and "its head has grown" in str(error)
    assert error.hint.startswith("lower server.optimiser.lr to a third")
    assert growths(events)[0]["party"] == "server"


def test_local_steps_that_explode_between_two_rounds_name_their_party_and_the_steps() -> None:
    """The rate overflows a float after a few steps, whatever the processor."""
    sets = ("federation.batch=32", "every_party.optimiser.lr=0.02", "parties.party2.optimiser.lr=1e12")
    _, error = run(config(VIMADMM, *sets))
    assert error is not None and error.members == ("party2",)
    assert "federation.protocol.tau to 7 at every member" in error.hint


def test_heads_after_their_step_name_the_server() -> None:
    """VIMADMM as printed: docs/protocols/vimadmm.md."""
    _, error = run(config({**VIMADMM, "residual": "new"}, "federation.batch=32", "every_party.optimiser.lr=0.1"))
    assert error is not None and error.member == "server" and "Update.residual" in str(error)


def test_losses_of_zeroth_order_are_refused_where_they_are_computed() -> None:
    sets = ("every_party.optimiser.name=sgd", "every_party.optimiser.lr=1e20", "server.optimiser.lr=1e20")
    _, error = run(config({"name": "czofo", "embedding": 16}, *sets, "federation.batch=64"))
    assert error is not None and error.hint.startswith("lower ")


def test_a_party_that_sends_no_number_out_of_nowhere_is_the_only_one_blamed() -> None:
    def lie(cohort: Cohort) -> None:
        link, deliver = cohort["party2"], cohort["party2"].deliver

        def altered(item: Any) -> None:
            if isinstance(item, Embedding) and item.round == 7:
                item = replace(item, h=torch.full_like(item.h, torch.nan))
            deliver(item)

        link.deliver = altered  # type: ignore[method-assign]

    events, error = run(config(SPLIT), on_cohort=lie)
    assert error is not None and error.members == ("party2",)
    assert "; then" not in str(error) and "it sent Embedding.h: expected finite numbers, got" in str(error)
    assert not growths(events)


def test_other_members_read_no_number() -> None:
    _, error = run(config(SPLIT, "parties.party3.optimiser.lr=1000"))
    assert error is not None
    assert error.shared == f"training has diverged by round {error.shared.split()[5].rstrip(',')}, at first at party3"


@pytest.mark.parametrize("protocol", sorted(path.parent.name for path in (ROOT / "experiments").glob("*/demo.yaml")))
def test_the_demos_give_no_warning(protocol: str) -> None:
    file = ROOT / "experiments" / protocol / "demo.yaml"
    epochs = 2 if protocol == "scorecard" else 1  # its first makes bins
    fewer = ("federation.protocol.steps=20",) if protocol == "codes" else ()
    sets = (f"federation.epochs={epochs}", "federation.rounds=0", *fewer)
    events, error = run(load(file, sets), base=file.parent)
    assert error is None and not growths(events)


@pytest.mark.parametrize(
    ("protocol", "sigma", "seed"),
    [("split", 1, 0), ("split", 50, 1), ("vimadmm", 50, 0)],
)
def test_noise_gives_no_warning(protocol: str, sigma: int, seed: int) -> None:
    private = f"federation.privacy={{clip: 1, noise_multiplier: {sigma}, delta: 1.0e-5, seeded: true}}"
    sets = (private, "federation.batch=64", "federation.epochs=3", f"federation.seed={seed}")
    events, error = run(config({"name": protocol, "embedding": 16}, *sets))
    assert error is None and not growths(events)


def test_noise_hides_that_a_party_has_diverged() -> None:
    """What leaves a party under differential privacy is finite and of the usual size, whatever is in its model."""
    private = "federation.privacy={clip: 1, noise_multiplier: 1, delta: 1.0e-5, seeded: true}"
    events, error = run(config(SPLIT, private, "parties.party3.optimiser.lr=1e12", "federation.epochs=3"))
    assert error is None and not [event for event in growths(events) if event["party"] == "party3"]
