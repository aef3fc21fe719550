"""Noise on a party's values, and splits that stay with their party."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import DataNoiseConfig, PartyIndex, SplitConfig
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.data.sources import load_features, prepare
from colonnade.common.data.split import part_of

TRAIN = torch.arange(0, 1000)


def columns(noise: float | None, seed: int = 0, party: str = "bank", **more: object) -> torch.Tensor:
    tree = {"source": "sklearn", "name": "digits", **({"noise": {"std": noise, **more}} if noise else {})}
    data = TypeAdapter(DataConfig).validate_python(tree)
    features = load_features(data, PartyIndex(1, 4), Path())
    made = prepare(data, features, TRAIN, seed, party)
    return made[torch.arange(len(features.values))]


def test_noise_is_added_to_scaled_values_of_all_rows() -> None:
    noise = columns(2.0) - columns(None)
    assert noise.dtype == torch.float32
    for part in (noise[:1000], noise[1000:]):
        assert part.std().item() == pytest.approx(2.0, rel=0.03) and part.mean().item() == pytest.approx(0, abs=0.05)


def test_noise_is_the_same_every_time_and_another_for_every_party_and_seed() -> None:
    assert torch.equal(columns(1.0), columns(1.0))
    assert torch.equal(columns(1.0)[:5], columns(1.0)[torch.arange(5)])
    assert not torch.equal(columns(1.0), columns(1.0, party="shop"))
    assert not torch.equal(columns(1.0), columns(1.0, seed=1))


def test_noise_of_held_out_rows_leaves_those_for_training_as_they_are() -> None:
    plain, noisy = columns(None), columns(2.0, rows="held_out")
    assert torch.equal(noisy[:1000], plain[:1000])
    assert torch.equal(noisy[1000:], columns(2.0)[1000:]) and not torch.equal(noisy[1000:], plain[1000:])


@pytest.mark.parametrize("std", [0, -1, float("inf"), "much"])
def test_noise_of_no_size_is_refused(std: object) -> None:
    with pytest.raises(ValueError):
        DataNoiseConfig.model_validate({"std": std})


@pytest.mark.parametrize(
    "split",
    ["all", "image_rows", "columns", {"kind": "columns", "take": "random"}, {"kind": "columns", "index": 1, "count": 9},
     {"kind": "patches", "grid": [2, 2]}, {"kind": "patches", "grid": [3, 3], "index": 4}],
    ids=str,
)  # fmt: skip
def test_a_pinned_split_gives_the_same_part_in_every_roster(split: object) -> None:
    given = TypeAdapter(SplitConfig).validate_python(split)
    names = [str(number) for number in range(64)]
    for index in range(4):
        before = part_of(given, (8, 8), names, PartyIndex(index, 4))
        after = part_of(given.pinned(PartyIndex(index, 4)), (8, 8), names, PartyIndex(0, 1))
        assert torch.equal(before.positions, after.positions) and before.shape == after.shape


@pytest.mark.parametrize("member", [0, 1])
def test_a_pinned_half_stays_that_half(member: int) -> None:
    given = TypeAdapter(SplitConfig).validate_python({"kind": "halves", "side": "top-bottom"})
    before = part_of(given, (8, 8), [], PartyIndex(member, 2))
    assert torch.equal(
        before.positions, part_of(given.pinned(PartyIndex(member, 2)), (8, 8), [], PartyIndex(0, 1)).positions
    )
