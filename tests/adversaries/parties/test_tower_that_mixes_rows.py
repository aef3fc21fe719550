"""A party's own tower mixes rows of a batch: then noise for one row does not hide it in the others.

Bounds: a row's noise (party).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from colonnade.common.config.members import Config
from colonnade.common.config.models import ModelConfig, OwnConfig
from colonnade.common.errors import ConfigError
from colonnade.common.models.build import build_model
from colonnade.common.models.probes import mixing
from colonnade.common.parsing.file import parse
from tests.support.federation import config, federate, tree
from tests.support.seeded import seeded

TOWERS = """
import random
import torch
from torch import nn
from colonnade.common.models.polynomial import Polynomial


class Tower(nn.Module):
    def __init__(self, shape, how, width=16):
        super().__init__()
        self.how, self.linear, self.drop = how, nn.Linear(shape[0], width), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(width) if how == "normalised" else None
        self.before = torch.zeros(width)

    def forward(self, x):
        h = self.drop(self.linear(x))
        return getattr(self, self.how)(h)

    def alone(self, h):
        return h.relu()

    def by_itself(self, h):
        return h - h.mean(1, keepdim=True)

    def mean(self, h):
        return h - h.mean(0)

    def attention(self, h):
        return (h @ h.T / 100).softmax(1) @ h

    def neighbour(self, h):
        return h + 0.01 * h.roll(1, 0)

    def rank(self, h):
        return h.argsort(0).argsort(0).float()

    def normalised(self, h):
        return self.norm(h)

    def in_evaluations(self, h):
        return h if self.training else h - h.mean(0)

    def memory(self, h):
        shown, self.before = h - self.before, h.detach().mean(0)
        return shown

    def dice(self, h):
        return h + random.random()

    def picky(self, h):
        if len(h) > 2:
            raise ValueError("row 17 has income 1.000")
        return h


class Mixed(Polynomial):
    def __init__(self, shape, width=64):
        super().__init__(shape[0], 2, width)

    def powers(self, x):
        return super().powers(x - x.mean(0))
"""
MIXES = {
    "mean": "a row changes the outputs for other rows of the batch, in training mode",
    "attention": "a row changes the outputs for other rows of the batch, in training mode",
    "neighbour": "a row changes the outputs for other rows of the batch, in training mode",
    "rank": "a row changes the outputs for other rows of the batch, in training mode",
    "normalised": "a row changes the outputs for other rows of the batch, in training mode",
    "in_evaluations": "a row changes the outputs for other rows of the batch, in evaluation mode",
    "memory": "a row changes the outputs for the next batch, in training mode",
    "dice": "it is not deterministic with the same rows and seed, in training mode",
    "picky": "it cannot be tested with 32 rows, in training mode: ValueError",
}
ALONE = ("alone", "by_itself")
PRIVATE = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 0.05, delta: 1e-4, seeded: true}"
SHORT = ("federation.rounds=1", "federation.epochs=0")
SPLIT = {"name": "split", "embedding": 16}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "towers.py").write_text(TOWERS)
    return tmp_path


def tower(how: str) -> str:
    return f"every_party.model={{file: './towers.py:Tower', how: {how}}}"


def built(how: str, base: Path) -> nn.Module:
    return build_model(OwnConfig.model_validate({"file": "./towers.py:Tower", "how": how}), (16,), seeded(0), base)


@pytest.mark.parametrize("how", [how for how in MIXES if how not in ("normalised", "picky")])
def test_a_tower_that_mixes_rows_is_refused_under_per_row_protection(how: str, base: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        federate(config(SPLIT, PRIVATE, tower(how), *SHORT), base=base)
    assert f"parties.party1.model: {MIXES[how]}" in str(refused.value)
    assert "mechanism = adaptive protects each row by itself" in str(refused.value)
    assert "a function of that row alone" in str(refused.value.hint)


@pytest.mark.parametrize("how", ["mean", "normalised", "in_evaluations", "memory"])
def test_elsewhere_there_is_a_warning_of_every_party(how: str, base: Path) -> None:
    outcome = federate(config(SPLIT, tower(how), *SHORT), base=base)
    warned = [e["reason"] for e in outcome.of_kind("warning") if "`state_dict`" not in e["reason"]]
    assert all(
        f"parties.{party}.model: {MIXES[how]}" in said for party, said in zip(outcome.clients, warned, strict=True)
    )


@pytest.mark.parametrize("how", ALONE)
def test_a_tower_of_rows_alone_is_taken_without_a_word(how: str, base: Path) -> None:
    outcome = federate(config(SPLIT, PRIVATE, tower(how), *SHORT), base=base)
    assert outcome.of_kind("warning") == []


@pytest.mark.parametrize("how", [*MIXES, *ALONE])
def test_the_probe_reports_the_mixing_and_changes_nothing(how: str, base: Path) -> None:
    model, rows = built(how, base), torch.rand(32, 16)
    before, state = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    said = mixing(model, rows)
    assert said.startswith(MIXES[how]) if how in MIXES else said == ""
    assert "income" not in said
    assert torch.equal(torch.get_rng_state(), before) and model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_equal_rows_are_probed_as_well(base: Path) -> None:
    assert mixing(built("mean", base), torch.ones(32, 16)) == MIXES["mean"]


@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet", "linear", "polynomial", "resnet18"])
def test_rows_meet_in_no_built_in_model_but_those_with_batch_norm(name: str) -> None:
    """Hence only user-defined towers need the probe when a run begins."""
    shape = (1, 28, 28) if name == "lenet" else (3, 32, 32) if name in ("cnn", "resnet18") else (16,)
    party = parse(tree(SPLIT), (f"every_party.model={name}",)).parties["party1"]
    model: ModelConfig = party.model
    built_in = build_model(model, shape, seeded(0))
    normalises = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in built_in.modules())
    assert bool(mixing(built_in, torch.rand(4, *shape))) == normalises == (name == "resnet18")


def test_fedvs_takes_its_own_polynomials_alone(base: Path) -> None:
    """The coded data are the network's powers of each row; a derived class could compute them of all rows together."""
    made: Config = config({"name": "fedvs"}, "every_party.model={file: './towers.py:Mixed'}", *SHORT)
    with pytest.raises(ConfigError, match="which only a polynomial network can"):
        federate(made, base=base)
