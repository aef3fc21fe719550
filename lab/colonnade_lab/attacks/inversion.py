"""A party's features from its messages: a decoder trained on rows that the attacker knows.

The model inversion of He, Zhang and Lee 2019 ("Model Inversion Attacks Against Collaborative Inference"), with known
rows in place of queries: the server never sees the party's model.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError, disk_faults
from colonnade.common.run.files import write_durably
from colonnade_lab.attacks.network import Network, fit, linear
from colonnade_lab.attacks.rows import (
    FieldRecords,
    Rows,
    Transcript,
    common_rows,
    gathered,
    pieces,
    principal,
    vectors,
    window_length,
)
from colonnade_lab.attacks.run import AttackedRun, accuracy, largest_class

NEWEST = "newest"
_FEWEST = 10
_COMPONENTS = (16, 64, 256)
_SMALLEST = 4  # least side of an image, in pixels


@dataclass(frozen=True)
class Readable:
    """Accuracy of a classifier on true features and on reconstructions (`made`); `chance` is the largest class."""

    true: float
    made: float
    chance: float


@dataclass(frozen=True)
class Inversion:
    """Result of inverting one party's messages.

    Args:
        known: number of rows that the attacker trained on.
        width: numbers per row that the party sent.
        mse: mean squared error, in units of the features as the party's model sees them.
        floor: that of the mean of the known rows.
        ssim, floor_ssim: mean structural similarity of reconstructions and of the mean image; None if rows are no
            images.
        originals, made: the tested rows, (rows, *shape).
        decoder: `network` or `linear`.
    """

    known: int
    rows: int
    width: int
    mse: float
    floor: float
    ssim: float | None
    floor_ssim: float | None
    readable: Readable
    originals: Tensor
    made: Tensor
    decoder: str
    how: str = NEWEST


def invert(run: AttackedRun, party: str, known: float, epochs: int, seed: int) -> Inversion | None:
    """Trains a decoder on a party's messages about known training rows, and tests it on the others.

    Args:
        epochs: number of the newest captured epochs that are averaged; 0 for everything that was captured, combined in
            the way that is best for the known rows.

    Returns:
        None if no message of the party has a value for every row.
    """
    ways = _said(run, party, epochs)
    if not ways:
        return None
    rows = next(iter(ways.values()))[0]
    have, rest = known_rows(party, len(rows), known, seed)
    x, y = run.columns(party)[rows], run.labels[rows]
    target = x[have].flatten(1)
    how = min(ways, key=lambda way: linear(ways[way][1][have], target)[1]) if len(ways) > 1 else next(iter(ways))
    said = ways[how][1]
    found = reconstruct(said[have], said[rest], x[have], x[rest], y[have], y[rest], seed=seed)
    return replace(found, how=how)


def known_rows(party: str, rows: int, known: float, seed: int) -> tuple[Tensor, Tensor]:
    """Places of the rows whose features the attacker knows, and of the others, int64 each."""
    order = torch.randperm(rows, generator=generator("known rows", seed, party))
    have, rest = order[: round(known * rows)], order[round(known * rows) :]
    if min(len(have), len(rest)) < _FEWEST:
        raise InputError(
            f"{party}: of {rows} captured rows {len(have)} are known and {len(rest)} are left, expected at least "
            f"{_FEWEST} of both",
            hint="choose another --known, or capture a whole epoch",
        )
    return have, rest


def _said(run: AttackedRun, party: str, epochs: int) -> dict[str, Rows]:
    """A party's values for every row by way of combining epochs, all of the same rows; empty if there are none."""
    length = window_length(run)
    found = pieces(run.schedule, run.training(party))
    newest, whole = gathered(found, "out", lambda: FieldRecords(max(epochs, 1)), lambda: Transcript(length))
    if not newest:
        return {}
    ways = {NEWEST: vectors([records.newest() for records in newest.values()])}
    if epochs == 0:
        ways["mean of all epochs"] = vectors([one.mean() for one in whole.values()])
        rows, windows = vectors([one.windows() for one in whole.values()])
        for most in _COMPONENTS:
            ways[f"{most} components of all epochs"] = rows, principal(windows, most)
    common, values = common_rows(list(ways.values()))
    return {how: (common, one) for how, one in zip(ways, values, strict=True)}


def reconstruct(
    said: Tensor, about: Tensor, x: Tensor, originals: Tensor, y: Tensor, truth: Tensor, *, seed: int
) -> Inversion:
    """Runs the attack on values sent for known rows and for others, float32 (n, width) and (m, width).

    The decoder is a network or a linear map, whichever is better on the second half of the known rows when trained on
    the first half. The other arguments are those of `judge`.
    """
    flat, shape = x.flatten(1), originals.shape
    centre = flat.mean(0)
    decoder, name = _decoder(said, flat - centre, seed)
    made = (decoder(about) + centre).view(shape)
    return judge(made, x, originals, y, truth, width=said.shape[1], decoder=name, seed=seed)


def judge(
    made: Tensor, x: Tensor, originals: Tensor, y: Tensor, truth: Tensor, *, width: int, decoder: str, seed: int
) -> Inversion:
    """Compares reconstructions `made` with the truth, and with the mean of the known rows.

    `x` and `originals` are features of known and of other rows, `y` and `truth` their classes.
    """
    flat, shape = x.flatten(1), originals.shape
    mean = flat.mean(0).view(shape[1:]).expand(shape)
    classes = int(max(y.max(), truth.max())) + 1
    classifier = fit(flat, y, functional.cross_entropy, classes, seed)
    true, read = (accuracy(classifier(one.flatten(1)).argmax(1), truth) for one in (originals, made))
    chance = largest_class(truth)
    return Inversion(
        len(x), len(originals), width, functional.mse_loss(made, originals).item(),
        floor=functional.mse_loss(mean, originals).item(), decoder=decoder,
        ssim=similarity(made, originals), floor_ssim=similarity(mean, originals),
        readable=Readable(true, read, chance), originals=originals, made=made,
    )  # fmt: skip


def _decoder(said: Tensor, target: Tensor, seed: int) -> tuple[Network, str]:
    half = len(said) // 2
    network = fit(said[:half], target[:half], functional.mse_loss, target.shape[1], seed)
    ridge, _ = linear(said[:half], target[:half])
    of_network, of_ridge = (functional.mse_loss(one(said[half:]), target[half:]) for one in (network, ridge))
    if of_ridge < of_network:
        return linear(said, target)[0], "linear"
    return fit(said, target, functional.mse_loss, target.shape[1], seed), "network"


def as_images(x: Tensor) -> Tensor | None:
    """Returns rows as (n, channels, height, width) if they are images of a minimum size; None for tables."""
    if x.dim() == 3:
        x = x[:, None]
    good = x.dim() == 4 and min(x.shape[2:]) >= _SMALLEST and x.shape[1] in (1, 3)
    return x if good else None


def similarity(made: Tensor, originals: Tensor) -> float | None:
    """Returns the mean SSIM over the originals' range; None for tables."""
    a, b = as_images(made), as_images(originals)
    if a is None or b is None:
        return None
    span = (b.max() - b.min()).item()
    return ssim(a, b, span if span > 0 else math.inf).mean().item()


_SIDE = 7  # side of the uniform window; smaller for smaller images
_K1, _K2 = 0.01, 0.03


def ssim(a: Tensor, b: Tensor, span: float) -> Tensor:
    """Mean structural similarity of every pair of images, (n, channels, height, width), as float64 (n,); 1 if equal.

    Windows lie wholly inside the image. Variances are sample variances (divided by pixels minus one). `span` is the
    largest minus the smallest possible pixel.
    """
    side = min(_SIDE, *a.shape[-2:])
    a, b = a.double(), b.double()

    def mean(x: Tensor) -> Tensor:
        return functional.avg_pool2d(x, side, stride=1)

    unbiased = side * side / max(side * side - 1, 1)
    mean_a, mean_b = mean(a), mean(b)
    variances = unbiased * (mean(a * a) - mean_a.square() + mean(b * b) - mean_b.square())
    covariance = unbiased * (mean(a * b) - mean_a * mean_b)
    c1, c2 = (_K1 * span) ** 2, (_K2 * span) ** 2
    likeness = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return torch.flatten(likeness / ((mean_a.square() + mean_b.square() + c1) * (variances + c2)), 1).mean(1)


_SHOWN, _GAP, _ENLARGED = 20, 2, 3


def draw_pairs(path: Path, originals: Tensor, made: Tensor) -> None:
    """Writes up to 20 pairs of images, (n, channels, height, width), side by side as a PNG.

    One channel or three; the originals' range maps to black to white.
    """
    low, high = originals.min(), originals.max()
    rows = [_beside(one[:_SHOWN]) for one in (originals, made)]
    gap = torch.full((*rows[0].shape[:-2], _GAP, rows[0].shape[-1]), high.item())
    levels = ((torch.cat([rows[0], gap, rows[1]], dim=-2) - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    pixels = (255 * levels).round().to(torch.uint8)
    array = pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(array)
    with disk_faults(f"{path} cannot be written", "choose another --out"):
        larger = image.resize((image.width * _ENLARGED, image.height * _ENLARGED), Image.Resampling.NEAREST)
        larger.save(png := io.BytesIO(), "PNG")
        write_durably(path, png.getvalue())  # replaces whatever exists, such as a link


def _beside(images: Tensor) -> Tensor:
    """Maps (n, channels, height, width) to (channels, height, n * (width + gap)), white between."""
    padded = torch.nn.functional.pad(images, (0, _GAP), value=images.max().item())
    return torch.cat(list(padded), dim=-1)
