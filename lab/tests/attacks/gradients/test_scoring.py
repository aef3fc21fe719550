"""Scores of gradients: what is planted is found, noise is not, and a run with noised answers gives nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.gradients import DIRECTION, NORM, Scored, Scores, areas, by_epoch, score
from colonnade_lab.attacks.rows import Piece
from lab.tests.attacks.stage import SPLIT, captured

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
