"""A party of two processes: embeddings and gradients of one, and refusals of ranks that would learn something else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import yaml
from torch import Tensor, nn

from colonnade.client.ranks.backprop import RankedBackprop, dismiss, meet
from colonnade.client.ranks.group import FILE, Group, World, joined, private_interface, shares
from colonnade.common.config.members import PartyConfig
from colonnade.common.errors import ColonnadeError, ConfigError
from colonnade.common.models.backprop import backprop
from colonnade.common.models.build import bottom_model
from colonnade.common.parsing.file import parse
from colonnade.launcher.ranks import party_code
from tests.support import warm
from tests.support.federation import tree
from tests.support.patience import PATIENCE

COLUMNS, WIDTH = 7, 5
MLP = {"name": "mlp", "hidden": 11, "embedding": WIDTH, "signed": True}
OWN = {"file": "./tower.py:Tower"}
TOWER = """
import torch
from torch import nn

class Tower(nn.Module):
    def __init__(self, shape, width=5):
        super().__init__()
        self.linear, self.unused = nn.Linear(shape[0], width), nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.rand(width), requires_grad=False)
        self.register_buffer("shift", torch.rand(width), persistent=False)

    def forward(self, rows):
        return torch.tanh(self.linear(rows)) * self.frozen + self.shift
"""
WORKER = """
import sys
from pathlib import Path
from colonnade.client.ranks.group import World
from colonnade.common.parsing.file import load
from colonnade.launcher.ranks import party_ranks

file = Path(sys.argv[1])
config = load(file)
with party_ranks(World.of_environment(), config.federation, "party1", config.parties["party1"], file.parent):
    pass
"""


def file_of(folder: Path, model: dict[str, Any], tower: str = TOWER) -> Path:
    """A configuration whose parties have this model, and the file of a model beside it."""
    made = tree({"name": "split", "embedding": WIDTH})
    made["every_party"]["model"] = model
    folder.mkdir(exist_ok=True)
    (folder / "tower.py").write_text(tower)
    (folder / "party.yaml").write_text(yaml.safe_dump(made))
    return folder / "party.yaml"


def own_section(file: Path) -> PartyConfig:
    return parse(yaml.safe_load(file.read_text())).parties["party1"]


def gone(reason: str) -> NoReturn:
    raise ColonnadeError(reason)


@contextmanager
def two_ranks(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch, other: Path | None = None, patience: float = PATIENCE
) -> Iterator[tuple[Group, subprocess.Popen[str]]]:
    """The group of this process, rank 0, and a worker, which reads `other` if it is another file."""
    place = folder / "group"
    ranks = {FILE: str(place), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (*ranks.items(), ("GLOO_SOCKET_IFNAME", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    process = warm.Popen(
        (sys.executable, "-c", WORKER, other or file), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    monkeypatch.setenv("RANK", "0")
    with process:
        try:
            with joined(World.of_environment(), "parties.party1", "", patience, gone) as group:
                yield group, process
        finally:
            process.kill()


def rows(number: int, seed: int = 0) -> Tensor:
    return torch.randn(number, COLUMNS, generator=torch.Generator().manual_seed(seed))


def built(file: Path) -> nn.Module:
    start = torch.Generator().manual_seed(3)
    return bottom_model("parties.party1", own_section(file).model, (COLUMNS,), WIDTH, start, file.parent)


def learn(through: Any, model: nn.Module) -> list[Tensor]:
    """Embeddings and gradients of batches of several sizes, between steps; some have fewer rows than ranks."""
    found = []
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    for t, size in enumerate((33, 33, 2, 1, 8)):
        h = through.forward(rows(size, t))
        found.append(h.clone())
        through.backward(h.cos() / size)
        found += [torch.zeros(1) if p.grad is None else p.grad.clone() for p in model.parameters()]
        optimiser.step()
        found += [embeddings(through, model, rows(n, t)) for n in (size, 2 * size + 1, size)]  # twice as it is
    return found


def embeddings(through: Any, model: nn.Module, inputs: Tensor) -> Tensor:
    if isinstance(through, RankedBackprop):
        return through.evaluate(inputs)
    with torch.no_grad():
        return model(inputs)


@pytest.mark.processes
@pytest.mark.parametrize("model", [MLP, OWN], ids=["by hand", "by autograd"])
def test_two_ranks_learn_what_one_does_and_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    file = file_of(tmp_path, model)
    config, alone, shared, again = own_section(file), built(file), built(file), built(file)
    expected = learn(backprop(alone), alone)
    with two_ranks(tmp_path, file, monkeypatch) as (group, process):
        meet(group, config, tmp_path)
        found, repeated = (
            learn(RankedBackprop("parties.party1", group, config, one, rows(64)), one) for one in (shared, again)
        )
        dismiss(group)
        assert process.wait(PATIENCE) == 0, process.communicate()[0]
    for one, other, repeat in zip(expected, found, repeated, strict=True):
        assert torch.allclose(one, other, rtol=0.0, atol=1e-5) and torch.equal(other, repeat)
    assert any(not torch.equal(one, other) for one, other in zip(expected, found, strict=True))  # in another order
    if model is OWN:
        assert all(parameter.grad is None for parameter in (*shared.unused.parameters(), shared.frozen))


@pytest.mark.processes
def test_ranks_of_other_configurations_are_refused_by_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = file_of(tmp_path, MLP), file_of(tmp_path / "other", {**MLP, "hidden": 12})
    with two_ranks(tmp_path, file, monkeypatch, other) as (group, process):
        with pytest.raises(ConfigError, match=r"^rank 1 has another model section than rank 0"):
            meet(group, own_section(file), tmp_path)
        assert "rank 1 has another model section than rank 0" in process.communicate(timeout=PATIENCE)[0]


@pytest.mark.processes
def test_ranks_whose_models_are_other_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its file, or only in what it computes: a tensor that is neither a parameter nor a buffer."""
    tower = TOWER.replace("* self.frozen", "* self.frozen + torch.rand(1)")
    file, other = file_of(tmp_path, OWN), file_of(tmp_path / "other", OWN, tower)
    with (
        two_ranks(tmp_path, file, monkeypatch, other) as (group, _),
        pytest.raises(ConfigError, match="rank 1 has another file of the model than rank 0"),
    ):
        meet(group, own_section(file), tmp_path)
    (tmp_path / "group").unlink(missing_ok=True)
    tower = TOWER.replace('self.register_buffer("shift", torch.rand(width), persistent=False)', "self.shift = draw()")
    file = file_of(tmp_path, OWN, tower + "\ndef draw():\n    import os\n    return float(os.environ['RANK'])\n")
    with two_ranks(tmp_path, file, monkeypatch) as (group, _):
        meet(group, own_section(file), tmp_path)
        with pytest.raises(ConfigError, match="rank 1 makes other embeddings of the same rows"):
            RankedBackprop("parties.party1", group, own_section(file), built(file), rows(64))


@pytest.mark.processes
def test_a_killed_rank_is_noticed_in_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(tmp_path, MLP)
    with two_ranks(tmp_path, file, monkeypatch) as (group, process):
        meet(group, own_section(file), tmp_path)
        through = RankedBackprop("parties.party1", group, own_section(file), built(file), rows(64))
        process.kill()
        process.wait(PATIENCE)
        with pytest.raises(ColonnadeError, match=r"rank.* is gone: its connection was closed"):
            learn(through, built(file))


@pytest.mark.processes
@pytest.mark.slow
def test_a_rank_that_hangs_counts_as_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(tmp_path, MLP)
    with two_ranks(tmp_path, file, monkeypatch, patience=20.0) as (group, process):
        meet(group, own_section(file), tmp_path)
        through = RankedBackprop("parties.party1", group, own_section(file), built(file), rows(64))
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(ColonnadeError, match=r"another rank is gone: "):
            learn(through, built(file))


@pytest.mark.parametrize(
    ("said", "last"),
    [
        ("normalises over the rows of a batch", nn.BatchNorm1d(WIDTH)),
        ("has dropout", nn.Dropout()),
        ("a row changes the outputs for other rows", nn.Softmax(0)),
    ],
)
def test_models_whose_rows_cannot_be_shared_out_are_refused(tmp_path: Path, said: str, last: nn.Module) -> None:
    """Before another rank is asked."""
    model, config = nn.Sequential(nn.Linear(COLUMNS, WIDTH), last), own_section(file_of(tmp_path, OWN))
    with pytest.raises(ConfigError, match=f"with several ranks: {said}"):
        RankedBackprop("parties.party1", Group(World(0, 2, 2), gone), config, model, rows(64))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_are_consecutive_and_as_equal_as_they_can_be(size: int) -> None:
    for number in (0, 1, 7, 20, 21):
        found = [list(range(number))[share] for share in shares(number, size)]
        assert list(chain.from_iterable(found)) == list(range(number))
        assert max(map(len, found)) - min(map(len, found)) <= 1 and len(found[0]) == max(map(len, found))


def test_a_rank_listens_on_loopback_or_a_private_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    addresses = {"in": "10.1.2.3", "out": "93.184.215.14", "none": None}

    def interface(name: str, *, several: bool = True) -> str:
        return private_interface("parties.ada", name, several=several, address=addresses.get)

    assert private_interface("parties.ada", "", several=False).startswith("lo") and interface("in") == "in"
    with pytest.raises(ConfigError, match=r"parties\.ada\.interface = out: its address 93\.184\.215\.14 is public"):
        interface("out", several=False)
    with pytest.raises(ConfigError, match=r"parties\.ada\.interface: missing"):
        interface("")
    with pytest.raises(ConfigError, match="none: it has no IPv4 address"):
        interface("none")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "in,out")
    with pytest.raises(ConfigError, match=r"GLOO_SOCKET_IFNAME = out: .* is public"):
        interface("")


@pytest.mark.parametrize(
    ("protocol", "sets", "said"),
    [
        ({"name": "fedvs"}, (), "the protocol fedvs: a party"),
        ({"name": "secureboost"}, (), "the protocol secureboost: a party"),
        ({"name": "vfl_afe"}, (), "the protocol vfl_afe: a party"),
        ({"name": "split"}, ("federation.batch=1",), "federation.batch = 1: some would have no row"),
        ({"name": "split"}, ("every_party.device=cuda:0",), "device = cuda:0: workers compute on CPUs"),
        (
            {"name": "split"},
            ("federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 1, delta: 1e-4}",),
            "federation.privacy.mechanism = adaptive: rows are brought into a region",
        ),
    ],
)
def test_workers_are_refused_where_they_would_not_compute_a_share(
    protocol: dict[str, Any], sets: tuple[str, ...], said: str
) -> None:
    parse(tree(protocol), sets)
    with pytest.raises(ConfigError, match=rf"parties\.party1\.workers = 2 with {said}"):
        parse(tree(protocol), (*sets, "parties.party1.workers=2"))


def test_a_party_ends_by_its_own_error_or_like_the_rank_that_was_killed() -> None:
    assert party_code({1: 2, 0: -signal.SIGKILL}) == 2
    assert party_code({0: 3, 1: 130}) == 3
    assert party_code({0: -signal.SIGTERM, 1: -signal.SIGKILL}) == -signal.SIGKILL
    assert party_code({0: 130, 1: -signal.SIGTERM}) == 130
