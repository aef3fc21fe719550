"""Oriented gradients: an image computed pixel by pixel, shapes, edges of one direction, and rows by themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from colonnade.common.errors import InputError
from colonnade.common.privacy.encoders import oriented_gradients


def by_hand(image: np.ndarray) -> np.ndarray:
    """The definition, pixel by pixel and cell by cell, of the image amid four pixels of zeros on every side."""
    tall, wide = image.shape
    height, width = tall + 8, wide + 8
    at = lambda r, c: image[r - 4, c - 4] if 4 <= r < tall + 4 and 4 <= c < wide + 4 else 0.0  # noqa: E731
    votes = np.zeros((9, height, width))
    for r in range(height):
        for c in range(width):
            across, down = at(r, c + 1) - at(r, c - 1), at(r + 1, c) - at(r - 1, c)
            turn = math.atan2(down, across) % math.pi / math.pi * 9
            low = math.floor(turn)
            votes[low % 9, r, c] += math.hypot(across, down) * (1 - (turn - low))
            votes[(low + 1) % 9, r, c] += math.hypot(across, down) * (turn - low)
    rows, columns = (height - 4) // 2 + 1, (width - 4) // 2 + 1
    cells = np.array(
        [[votes[:, 2 * r : 2 * r + 4, 2 * c : 2 * c + 4].mean((1, 2)) for c in range(columns)] for r in range(rows)]
    )
    found = np.zeros_like(cells)
    for r in range(rows):
        for c in range(columns):
            near = cells[max(r - 1, 0) : r + 2, max(c - 1, 0) : c + 2]
            found[r, c] = np.sqrt(cells[r, c] / math.sqrt(9 * (near**2).sum(2).mean() + 1e-3))
    flat = found.transpose(2, 0, 1).ravel()
    return flat / np.linalg.norm(flat)


@pytest.mark.parametrize("shape", [(28, 14), (4, 4), (9, 6)])
def test_an_image_is_as_computed_by_hand(shape: tuple[int, int]) -> None:
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    found = oriented_gradients(images)
    assert found.shape == (3, 9 * ((shape[0] + 4) // 2 + 1) * ((shape[1] + 4) // 2 + 1))
    for row, image in zip(found, images, strict=True):
        np.testing.assert_allclose(row.numpy(), by_hand(image.double().numpy()), atol=2e-5)
    torch.testing.assert_close(oriented_gradients(images[1:2])[0], found[1])  # of its own row alone


def test_a_pixel_at_the_edge_is_in_as_many_features_as_one_in_the_middle() -> None:
    images = torch.zeros(4, 12, 12)
    for image, place in zip(images, ((0, 0), (0, 6), (6, 0), (6, 6)), strict=True):
        image[place] = 1
    assert len({int(count) for count in (oriented_gradients(images) > 0).sum(1)}) == 1


def test_an_empty_image_has_no_features_and_others_have_unit_length() -> None:
    images = torch.zeros(2, 8, 8)
    images[1, :, 4:] = 1
    assert oriented_gradients(images).norm(dim=1).tolist() == pytest.approx([0, 1])


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 8), (8, 8)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"expected .rows, height, width."):
        oriented_gradients(torch.zeros(shape))
