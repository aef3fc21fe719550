"""Members that deviate: backdoor and hijack."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.backdoor import open_backdoor
from colonnade_lab.attacks.hijack import AuxiliaryEncoder, Hijack, hijack
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow

NOISE = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 2, delta: 1e-4}"


def test_a_trained_trigger_decides_and_noise_drowns_it(tmp_path: Path) -> None:
    sets = ("federation.epochs=20", "federation.batch=50", "federation.rows={train: 500, validation: 0, test: 300}")
    clear, noised = (
        open_backdoor(captured(tmp_path / str(len(more)), SPLIT, *sets, *more), "party1", 0, 30, 0)
        for more in ((), (NOISE, "federation.epochs=4"))
    )  # fmt: skip
    assert clear.success > 0.15 and clear.interval[0] > 3 * max(clear.untrained, clear.chance)
    assert clear.accuracy > clear.honest - 0.03 and clear.honest > 0.85
    assert noised.success < noised.chance + 0.1


def test_more_rows_than_the_class_has_are_refused(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, "federation.rounds=1", "federation.epochs=0")
    with pytest.raises(InputError, match=r"--labels 999: there are \d+ training rows of class 0"):
        open_backdoor(run, "party1", 0, 999, 0)


def hijacked(folder: Path, protocol: dict[str, object], *sets: str) -> Hijack:
    run = captured(folder, {"embedding": 32, **protocol}, "federation.epochs=10", "federation.batch=100", *sets)
    return hijack(run, "party1", 0.2, 0)


def test_a_steered_party_is_read_better_at_the_same_accuracy_and_noise_drowns_it(tmp_path: Path) -> None:
    clear, noised = (
        hijacked(tmp_path / str(len(sets)), {"name": "split"}, *sets) for sets in ((), (NOISE, "federation.epochs=3"))
    )
    assert clear.hijacked.floor == clear.honest.floor
    assert clear.hijacked.mse < 0.75 * clear.honest.mse and clear.hijacked.mse < 0.3 * clear.hijacked.floor
    assert clear.test_accuracy is not None and clear.honest_accuracy is not None
    assert clear.test_accuracy > clear.honest_accuracy - 0.03
    assert noised.hijacked.mse > 0.95 * noised.hijacked.floor


@pytest.mark.parametrize("protocol", [{"name": "fedbcd", "tau": 3}, {"name": "vafl", "arrivals": False}])
def test_other_protocols_that_send_gradients_are_steered_as_well(tmp_path: Path, protocol: dict[str, object]) -> None:
    found = hijacked(tmp_path, protocol, "federation.epochs=5")
    assert found.hijacked.mse < 0.8 * found.honest.mse


def test_gradients_lead_known_rows_to_their_codes_and_nobody_else() -> None:
    """Following them, embeddings become the components, each as two numbers where none may be negative."""
    draws = generator("rows")
    x = torch.randn(50, 6, generator=draws) * torch.tensor([3.0, 2, 1, 0.1, 0.1, 0.1])
    for first in (torch.rand(50, 6, generator=draws), torch.randn(50, 6, generator=draws)):
        encoder, h = AuxiliaryEncoder(x, torch.arange(50) * 2, 100), first.clone()
        batch = torch.arange(50) * 2
        for _ in range(200):
            h -= 5 * encoder.answer(batch, h)
        assert not encoder.answer(batch + 1, h).any()
        assert bool((first >= 0).all()) == bool((h >= -1e-4).all())
        found = torch.linalg.lstsq(torch.cat([h, torch.ones(50, 1)], 1), x).solution
        left = (torch.cat([h, torch.ones(50, 1)], 1) @ found - x).square().mean()
        assert left < (0.05 if (first >= 0).all() else 1e-4) * x.var()


@pytest.mark.parametrize(
    ("protocol", "sets", "message"),
    [
        ({"name": "fdml", "embedding": 8}, (), "fdml: the server sends no gradients"),
        ({"name": "vafl", "embedding": 8, "arrivals": True}, (), r"arrivals = true"),
        (
            {"name": "split_avg", "embedding": 8, "aggregate": "blinded"},
            ("federation.blinding={least: 2}", "every_party.policy={min_parties: 2}"),
            "split_avg: the server sends no gradients of one party's",
        ),
    ],
)
def test_runs_without_such_gradients_are_refused(
    tmp_path: Path, protocol: dict[str, object], sets: tuple[str, ...], message: str
) -> None:
    run = captured(tmp_path, protocol, "federation.rounds=1", "federation.epochs=0", *sets)
    with pytest.raises(InputError, match=message):
        hijack(run, "party1", 0.2, 0)


def test_too_few_known_rows_are_refused(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, "federation.rounds=1", "federation.epochs=0")
    with pytest.raises(InputError, match="are known"):
        hijack(run, "party1", 0.001, 0)
