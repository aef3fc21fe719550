"""Labels from cut-layer gradients: norm and direction, single batches, the first head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.data.draws import SecretDraws
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.gradients import (
    DIRECTION,
    NORM,
    Scored,
    Scores,
    areas,
    by_epoch,
    match,
    match_batches,
    score,
)
from colonnade_lab.attacks.labels import best_names, clusters, directions, name_labels
from colonnade_lab.attacks.rows import Piece
from colonnade_lab.attacks.run import AttackedRun, accuracy, open_run
from lab.tests.attacks.stage import SPLIT, captured
from tests.support.federation import config

pytestmark = pytest.mark.slow

ROWS = 600
VAFL = {"name": "vafl", "embedding": 10}
NOISED = "server.privacy.answers={clip: 0.1, head_clip: 1, noise_multiplier: 20, delta: 1e-4}"


def best(found: list[Scored], method: str) -> Scored:
    return next(one for one in found if one.method == method)


def test_directions_are_compared_with_those_of_known_rows_of_the_same_epoch() -> None:
    """Directions turn between epochs; a row's scores are about the class alone."""
    labels = torch.randint(0, 4, (ROWS,), generator=generator("labels"))
    scores = Scores(torch.arange(40), labels, 4)
    for epoch in (1, 2):
        turn = torch.linalg.qr(torch.randn(6, 6, generator=generator("turn", epoch))).Q[:4]
        rows = torch.randperm(ROWS, generator=generator("rows", epoch))
        scores.add(epoch, rows, turn[labels[rows]] * (1 + rows[:, None]))
    for found in (scores.last[1], scores.all()):  # type: ignore[index]
        torch.testing.assert_close(found[DIRECTION], torch.eye(4)[labels], atol=1e-5, rtol=0)
        assert (found[NORM].diff(dim=0) > 0).all()  # lengths grow with the row's number


def test_noise_of_single_epochs_averages_out() -> None:
    labels = torch.randint(0, 4, (ROWS,), generator=generator("labels"))
    scores, right = Scores(torch.arange(40), labels, 4), []
    for epoch in range(30):
        values = torch.eye(4)[labels] + torch.randn(ROWS, 4, generator=generator("noise", epoch))
        scores.add(epoch, torch.arange(ROWS), values)
        right.append((scores.all()[DIRECTION].argmax(1) == labels).float().mean().item())
    assert right[-1] > 0.95 and right[0] < 0.65


def test_epochs_that_mix_are_told_apart() -> None:
    said = [Piece("G.g", "in", epoch, "train", torch.tensor([row]), torch.tensor([[1.0 * epoch]]))
            for epoch, row in ((1, 0), (2, 0), (1, 1), (2, 1), (3, 0))]  # fmt: skip
    other = Piece("E.h", "out", 1, "train", torch.tensor([0]), torch.ones(1, 1))
    found = [(name, epoch, rows.tolist()) for name, epoch, rows, _ in by_epoch(iter([other, *said]))]
    assert found == [("G.g", 1, [0, 1]), ("G.g", 2, [0, 1]), ("G.g", 3, [0])]


def test_gradients_of_the_digits_point_to_their_class_and_noised_ones_do_not(tmp_path: Path) -> None:
    clear, noised = (
        score(captured(tmp_path / str(len(sets)), VAFL, "federation.epochs=3", *sets), "party1", 40, 0)
        for sets in ((), (NOISED,))
    )
    assert best(clear, DIRECTION).area.interval[0] > 0.8 and best(clear, DIRECTION).known == 40
    assert best(noised, DIRECTION).area.auc < 0.55 and best(noised, NORM).area.auc < 0.55


def test_the_rarer_of_two_classes_has_longer_gradients() -> None:
    """The paper's case: a model that knows how rare a class is, and little more, is surest of the other one."""
    draws = generator("rare")
    labels = (torch.rand(ROWS, generator=draws) < 0.1).long()
    logits = (torch.randn(ROWS, generator=draws) - 2.2).requires_grad_()
    torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum").backward()
    assert logits.grad is not None
    scores = Scores(torch.arange(2), labels, 2)
    scores.add(1, torch.arange(ROWS), logits.grad[:, None] * torch.tensor([[1.0, -2, 0.5]]))
    found = list(areas("G.g", scores))
    assert best(found, NORM).area.interval[0] > 0.95
    scores.labels[:] = 1 - labels  # the same class is the rarer one by another name
    assert best(list(areas("G.g", scores)), NORM) == best(found, NORM)


def test_too_few_known_labels_are_refused(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, "federation.rounds=1", "federation.epochs=0")
    with pytest.raises(InputError, match="--labels 9: expected 10, one of every class, to 1293"):
        score(run, "party1", 9, 0)


VAFL_BATCHES = {"name": "vafl", "embedding": 10}
NOISED_BATCHES = "server.privacy.answers={clip: 0.1, head_clip: 1, noise_multiplier: 20, delta: 1e-4}"


def right(groups: Tensor, labels: Tensor) -> float:
    return accuracy(best_names(groups, labels, 5), labels)


def test_rows_whose_predictions_differ_are_matched_better_than_clustered() -> None:
    """Every row is mistaken for another class, surely: rows of a class have four directions, which meet others'."""
    found, clustered = [], []
    for number in range(5):
        draws = generator("planted", number)
        labels = torch.randint(0, 5, (100,), generator=draws)
        head, other = torch.randn(5, 4, generator=draws), torch.randn(100, 5, generator=draws)
        gradients = ((4 * other).softmax(1) - torch.eye(5)[labels]) @ head
        found.append(right(match(gradients, 5), labels))
        clustered.append(right(clusters(directions(gradients), 5), labels))
    assert sum(found) / 5 > sum(clustered) / 5 + 0.05 and sum(found) / 5 > 0.8


def test_noise_names_no_label() -> None:
    labels = torch.randint(0, 5, (100,), generator=generator("labels"))
    assert right(match(torch.randn(100, 12, generator=generator("noise")), 5), labels) < 0.4


def test_a_batch_of_the_digits_is_named_and_one_of_noised_answers_is_not(tmp_path: Path) -> None:
    clear, noised = (
        match_batches(captured(tmp_path / str(len(sets)), VAFL_BATCHES, "federation.epochs=1", *sets), "party1")[0]
        for sets in ((), (NOISED_BATCHES,))
    )
    assert clear.field == "Gradient.dh" and clear.accuracy > clear.chance + 0.3
    assert abs(noised.accuracy - noised.chance) < 0.06


PROTOCOLS = [
    {"name": "split", "embedding": 12},
    {"name": "split_avg", "embedding": 12},
    {"name": "split_avg", "embedding": 12, "aggregate": "blinded"},
]
ONE = ("federation.rounds=2", "federation.epochs=0", "federation.batch=100", "federation.public_start=true")


async def secretly(ctx: ServerContext, clients: Cohort, cfg: Any) -> None:
    ctx.draws = SecretDraws.fresh(ctx.federation.id)
    await SERVE[cfg.name](ctx, clients, cfg)


def of_secret_head(folder: Path, protocol: dict[str, Any], *sets: str) -> AttackedRun:
    cfg = config(protocol, "every_party.capture={}", *ONE, *sets)
    simulate_captured(cfg, folder, folder, instead={SERVER: secretly})
    return open_run(folder)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_public_head_gives_the_first_batch_s_labels_away(tmp_path: Path, protocol: dict[str, Any]) -> None:
    found = name_labels(captured(tmp_path, protocol, *ONE), "party2")
    assert found is not None and found.rows == 100 and found.first == 1 and found.chance < 0.2


def test_so_does_a_public_head_that_bends(tmp_path: Path) -> None:
    head = "server.head={name: mlp, dropout: 0}"
    found = name_labels(captured(tmp_path / "clear", PROTOCOLS[0], *ONE, head), "party2")
    assert found is not None and found.first > 0.8
    assert name_labels(captured(tmp_path / "blinded", PROTOCOLS[2], *ONE, head), "party2") is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_secret_head_does_not(tmp_path: Path, protocol: dict[str, Any]) -> None:
    """One draw names most rows of a class alike, rightly or wrongly: chance is the mean over draws."""
    run = of_secret_head(tmp_path, protocol)
    tried = [None, *(torch.Generator().manual_seed(seed) for seed in range(30))]
    every = [name_labels(run, "party2", start) for start in tried]
    shares = [one.first for one in every if one is not None]
    assert len(shares) == 31 and shares[0] < 0.7
    assert sum(shares) / len(shares) < 0.2
