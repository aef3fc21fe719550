"""Inversions of messages that are the features, that are noise, and of a real embedding."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.inversion import Inversion, as_images, draw_pairs, invert, reconstruct, similarity, ssim
from colonnade_lab.attacks.network import fit
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow

DIGITS = load_digits()
IMAGES = torch.from_numpy(DIGITS.images).float() / 16
CLASSES = torch.from_numpy(DIGITS.target)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=generator("noise"))


def inverted(said: Tensor, known: int = 250) -> Inversion:
    x, y = IMAGES[: len(said)], CLASSES[: len(said)]
    return reconstruct(said[:known], said[known:], x[:known], x[known:], y[:known], y[known:], seed=0)


@pytest.fixture(scope="module")
def nothing() -> Inversion:
    return inverted(noise(700, 16))


def test_features_that_were_sent_come_out_again_and_noise_hides_them() -> None:
    found = inverted(3 * IMAGES[:700].flatten(1) - 1)
    assert found.mse < 0.2 * found.floor and found.ssim is not None and found.ssim > 0.8
    assert found.readable.made > 0.7 and abs(found.readable.made - found.readable.true) < 0.12
    assert found.made.shape == found.originals.shape == (450, 8, 8)
    assert found.mse < 0.5 * inverted(IMAGES[:700].flatten(1) + 3 * noise(700, 64)).mse


def test_nothing_comes_out_of_noise(nothing: Inversion) -> None:
    found = nothing
    assert found.mse > 0.97 * found.floor and found.readable.made < found.readable.chance + 0.08
    assert found.ssim is not None and found.floor_ssim is not None and abs(found.ssim - found.floor_ssim) < 0.05
    assert found.readable.true > 0.7


def test_the_baseline_is_the_mean_of_the_known_rows_only(nothing: Inversion) -> None:
    found = nothing
    mean = IMAGES[:250].double().mean(0)
    assert found.floor == pytest.approx((IMAGES[250:700].double() - mean).square().mean().item(), rel=1e-5)
    assert (found.known, found.rows, found.width) == (250, 450, 16)
    assert found.readable.chance == pytest.approx(CLASSES[250:700].bincount().max().item() / 450)


def test_split_learning_on_the_digits_can_be_inverted_and_blinded_words_cannot(tmp_path: Path) -> None:
    run = captured(tmp_path / "split", SPLIT)
    found = invert(run, "party2", 0.3, 1, 0)
    assert found is not None and found.mse < 0.7 * found.floor and found.ssim is None
    rows = len(run.schedule.partition.train)
    assert (found.known, found.rows) == (round(0.3 * rows), rows - round(0.3 * rows))
    blind = captured(tmp_path / "blind", {"name": "fdml", "embedding": 10, "aggregate": "blinded"})
    found = invert(blind, "party2", 0.3, 1, 0)
    assert found is not None and found.mse > 0.95 * found.floor


def test_features_that_are_sent_outright_come_out(tmp_path: Path) -> None:
    """`centralized` is the planted leak, end to end: from a capture to numbers."""
    found = invert(captured(tmp_path, {"name": "centralized"}), "party2", 0.2, 1, 0)
    assert found is not None and found.mse < 0.2 * found.floor


def test_epochs_are_averaged(tmp_path: Path) -> None:
    """Twelve noisy messages of a row reveal more than one."""
    privacy = "federation.privacy={clip: 10, noise_multiplier: 0.04, seeded: true, delta: 1.0e-5}"
    run = captured(tmp_path, SPLIT, "federation.epochs=12", "every_party.optimiser={name: sgd, lr: 1.0e-4}", privacy)
    one, many = (invert(run, "party2", 0.2, epochs, 0) for epochs in (1, 12))
    assert one is not None and many is not None and many.mse < 0.95 * one.mse


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="party1: of 1294 captured rows 1 are known and 1293 are left, expected at"):
        invert(captured(tmp_path, SPLIT), "party1", 0.001, 1, 0)


def test_messages_without_a_line_per_row_are_not_attacked(tmp_path: Path) -> None:
    assert (
        invert(captured(tmp_path, {"name": "fedvs", "embedding": 8}, "federation.epochs=1"), "party1", 0.2, 1, 0)
        is None
    )


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((2, 28, 14), (2, 1, 28, 14)),
        ((2, 3, 8, 8), (2, 3, 8, 8)),
        ((2, 12), None),
        ((2, 2, 28), None),
        ((2, 5, 8, 8), None),
    ],
)
def test_image_shapes(shape: tuple[int, ...], image: tuple[int, ...] | None) -> None:
    found = as_images(torch.zeros(shape))
    assert image == (None if found is None else tuple(found.shape))


def test_similarity_is_over_the_originals_span() -> None:
    a, b = 4 * IMAGES[:5] - 1, 4 * IMAGES[5:10] - 1
    assert similarity(b, a) == pytest.approx(ssim(b[:, None], a[:, None], 4.0).mean().item())


def test_the_attackers_network_is_drawn_from_its_seed_alone() -> None:
    def once(seed: int) -> Tensor:
        return fit(noise(50, 3), noise(50, 2), torch.nn.functional.mse_loss, 2, seed)(noise(5, 3))

    first, _ = once(1), torch.rand(3)
    assert torch.equal(first, once(1)) and not torch.equal(first, once(2))


def test_pictures_show_originals_above_reconstructions(tmp_path: Path) -> None:
    originals, made = IMAGES[:25, None], 1 - IMAGES[:25, None]
    draw_pairs(tmp_path / "pairs.png", originals, made)
    with Image.open(tmp_path / "pairs.png") as image:
        pixels = torch.tensor(list(image.convert("L").tobytes())).view(image.height, image.width)
    assert pixels.shape == (3 * (8 + 2 + 8), 3 * 20 * (8 + 2))
    small = pixels[1::3, 1::3]  # the middle of every enlarged pixel
    for number in (0, 7, 19):
        left = number * 10
        assert torch.equal(small[:8, left : left + 8], (255 * IMAGES[number]).round().long())
        assert torch.equal(small[10:, left : left + 8], (255 * (1 - IMAGES[number])).round().long())


def by_hand(a: np.ndarray, b: np.ndarray, span: float) -> float:
    """Wang et al. 2004, Eq. 13, on every 7 x 7 window of one channel; sample variances."""
    side = min(7, *a.shape)
    c1, c2, found = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for top in range(a.shape[0] - side + 1):
        for left in range(a.shape[1] - side + 1):
            x, y = (image[top : top + side, left : left + side].ravel() for image in (a, b))
            both = np.cov(x, y, ddof=1)
            numerator = (2 * x.mean() * y.mean() + c1) * (2 * both[0, 1] + c2)
            found.append(numerator / ((x.mean() ** 2 + y.mean() ** 2 + c1) * (both[0, 0] + both[1, 1] + c2)))
    return float(np.mean(found))


@pytest.mark.parametrize("shape", [(7, 7), (12, 9), (28, 14), (5, 20)])
def test_it_is_the_definitions(shape: tuple[int, int]) -> None:
    a, b = torch.rand(2, 3, 1, *shape, generator=generator("images"), dtype=torch.float64)
    expected = [by_hand(x[0].numpy(), y[0].numpy(), 1.0) for x, y in zip(a, b, strict=True)]
    assert ssim(a, b, 1.0).tolist() == pytest.approx(expected)


@given(st.integers(0, 99), st.floats(0.1, 255))
def test_an_image_is_like_itself_and_the_measure_has_no_unit(seed: int, span: float) -> None:
    a, b = torch.rand(2, 2, 3, 10, 8, generator=generator("pair", seed), dtype=torch.float64)
    assert ssim(a, a, 1.0).tolist() == pytest.approx([1.0, 1.0])
    torch.testing.assert_close(ssim(a * span, b * span, span), ssim(a, b, 1.0))
    torch.testing.assert_close(ssim(b, a, 1.0), ssim(a, b, 1.0))
    assert (ssim(a, b, 1.0) < 0.9).all()


def test_a_negative_is_unlike_and_flat_images_compare_by_their_brightness() -> None:
    a = torch.rand(1, 1, 9, 9, generator=generator("one"), dtype=torch.float64)
    assert ssim(a, 1 - a, 1.0).item() < 0
    flat = torch.full((1, 1, 9, 9), 0.2), torch.full((1, 1, 9, 9), 0.4)
    assert ssim(*flat, 1.0).item() == pytest.approx((2 * 0.08 + 1e-4) / (0.04 + 0.16 + 1e-4), rel=1e-5)
    assert not math.isnan(ssim(torch.zeros(1, 1, 9, 9), torch.zeros(1, 1, 9, 9), 1.0).item())
