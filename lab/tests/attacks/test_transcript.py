"""Messages of many epochs, combined: against sums by hand, and on messages that say nothing alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade_lab.attacks.inversion import invert
from colonnade_lab.attacks.labels import combined, directions, guesses, infer
from colonnade_lab.attacks.rows import Piece, Transcript, principal
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow

LABELS = torch.randint(0, 10, (600,), generator=generator("labels"))
EPOCHS = 40


def piece(epoch: int, rows: list[int], *values: list[float]) -> Piece:
    return Piece("Embedding.h", "out", epoch, "train", torch.tensor(rows), torch.tensor(values))


def three_epochs() -> Transcript:
    """Two windows, of epochs 1 and 2 and of epoch 3; row 4 is in the first alone."""
    made = Transcript(2)
    made.add(piece(1, [0, 1], [1.0, 2.0], [3.0, 4.0]))
    made.add(piece(2, [1, 4], [5.0, 6.0], [7.0, 8.0]))
    made.add(piece(3, [1, 0], [9.0, 0.0], [1.0, 4.0]))
    return made


def test_means_are_over_all_messages_of_a_row() -> None:
    rows, mean = three_epochs().mean()
    assert rows.tolist() == [0, 1, 4]
    assert mean.flatten().tolist() == pytest.approx([1, 3, 17 / 3, 10 / 3, 7, 8])


def test_windows_stand_side_by_side_about_zero_and_at_one_scale() -> None:
    rows, windows = three_epochs().windows()
    assert rows.tolist() == [0, 1, 4] and windows.shape == (3, 4)
    first = torch.tensor([[1.0, 2], [4, 5], [7, 8]])
    torch.testing.assert_close(windows[:, :2], (first - first.mean(0)) / first.std(correction=0))
    assert windows[2, 2:].tolist() == [0, 0]  # the second window lacks it
    torch.testing.assert_close(windows[:2, 2:].sum(0), torch.zeros(2))


def test_values_of_one_number_and_single_messages_are_no_error() -> None:
    made = Transcript(1)
    made.add(Piece("Losses.delta", "in", 1, "train", torch.tensor([3]), torch.tensor([2.0])))
    assert made.mean()[1].tolist() == [[2.0]] and made.windows()[1].tolist() == [[0.0]]


def test_components_are_the_leading_ones() -> None:
    """Against the eigenvectors of the covariance, up to signs."""
    values = torch.randn(60, 5, generator=generator("values")) @ torch.diag(torch.tensor([5.0, 3, 1, 0.5, 0.1]))
    centred = values - values.mean(0)
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :2]
    torch.testing.assert_close(principal(values, 2).abs(), (centred @ vectors).abs(), rtol=1e-3, atol=1e-4)
    assert principal(values, 99).shape == (60, 5)


def told(labels: Tensor, *, afresh: bool) -> tuple[Transcript, Transcript]:
    """Vectors of the labels under noise of five times their length, in every epoch; `afresh`: of other labels each."""
    both = Transcript(4), Transcript(4, directions)
    for epoch in range(1, EPOCHS + 1):
        draws = generator("epoch", epoch)
        names = labels[torch.randperm(len(labels), generator=draws)] if afresh else labels
        values = torch.eye(10)[names] + 0.8 * torch.randn(len(labels), 10, generator=draws)
        for one in both:
            one.add(Piece("Gradient.dh", "in", epoch, "train", torch.arange(len(labels)), values))
    return both


def best(parts: dict[str, Piece]) -> tuple[float, float]:
    return max((found, chance) for one in parts.values() for _, found, chance, _ in guesses([one], LABELS, 10))


def test_labels_that_no_epoch_shows_are_named_by_all_together() -> None:
    values, turned = told(LABELS, afresh=False)
    once = Transcript(1), Transcript(1, directions)
    for one in once:
        one.add(Piece("Gradient.dh", "in", 1, "train", torch.arange(600), torch.eye(10)[LABELS] + 0.8 * noise(600)))
    assert best(combined(*once, 10))[0] < 0.75
    for one in combined(values, turned, 10).values():
        assert max(found for method, found, *_ in guesses([one], LABELS, 10) if "clusters" in method) > 0.97


def noise(rows: int) -> Tensor:
    return torch.randn(rows, 10, generator=generator("noise"))


def test_epochs_that_agree_on_nothing_name_no_label() -> None:
    found, chance = best(combined(*told(LABELS, afresh=True), 10))
    assert found < chance + 0.08 < 0.3


PROTECTED = "federation.privacy={clip: 10, noise_multiplier: 0.04, seeded: true, delta: 1.0e-5}"
ROWS = "federation.rows={train: 600, validation: 0, test: 100}"
STILL = "every_party.optimiser={name: sgd, lr: 1.0e-4}"


def test_a_whole_run_shows_what_its_last_epoch_hides(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, "federation.epochs=20", STILL, PROTECTED)
    newest, whole = (invert(run, "party2", 0.2, epochs, 0) for epochs in (1, 0))
    assert newest is not None and newest.mse > 0.8 * newest.floor and newest.how == "newest"
    assert whole is not None and whole.mse < 0.85 * newest.mse and "all epochs" in whole.how
    assert whole.rows == newest.rows


def test_messages_of_noise_alone_show_nothing_however_many(tmp_path: Path) -> None:
    hidden = PROTECTED.replace("0.04", "1e6")
    run = captured(tmp_path, SPLIT, "federation.epochs=20", ROWS, STILL, hidden)
    found = invert(run, "party2", 0.2, 0, 0)
    assert found is not None and found.mse > 0.97 * found.floor
    assert found.readable.made < found.readable.chance + 0.06


def test_labels_are_sought_in_one_epoch_or_in_all(tmp_path: Path) -> None:
    """Responses under noise of their own, of a server that learns slowly."""
    answers = "server.privacy.answers={clip: 0.01, head_clip: 1, noise_multiplier: 2, delta: 1e-4, seeded: true}"
    run = captured(tmp_path, {"name": "vafl", "embedding": 10}, "federation.epochs=40", ROWS, answers)
    one, whole = infer(run, "party1", 1), infer(run, "party1")
    assert all(guess.epochs in {"1", "40"} for guess in one) and one == [g for g in whole if g in one]
    assert whole[0].epochs.startswith("all") and whole[0].accuracy > one[0].accuracy + 0.05
