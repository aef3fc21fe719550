"""Originals above their reconstructions, as one PNG."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.durable import write_durably

_SHOWN, _GAP, _ENLARGED = 20, 2, 3


def pillow() -> None:
    """Raises EnvironmentFault early, before any computing, if pictures cannot be written."""
    try:
        import PIL  # noqa: F401, PLC0415  # an extra
    except ImportError:
        raise EnvironmentFault(
            "pictures need Pillow, which is not installed", hint="pip install 'colonnade[attack]'"
        ) from None


def draw(path: Path, originals: Tensor, made: Tensor) -> None:
    """Writes up to 20 pairs of images, (n, channels, height, width), side by side as a PNG.

    One channel or three; the originals' range maps to black to white.
    """
    pillow()
    from PIL import Image  # noqa: PLC0415

    low, high = originals.min(), originals.max()
    rows = [_beside(one[:_SHOWN]) for one in (originals, made)]
    gap = torch.full((*rows[0].shape[:-2], _GAP, rows[0].shape[-1]), high.item())
    levels = ((torch.cat([rows[0], gap, rows[1]], dim=-2) - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    pixels = (255 * levels).round().to(torch.uint8)
    array = pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(array)
    try:
        larger = image.resize((image.width * _ENLARGED, image.height * _ENLARGED), Image.Resampling.NEAREST)
        larger.save(png := io.BytesIO(), "PNG")
        write_durably(path, png.getvalue())  # replaces whatever exists, such as a link
    except OSError as failed:
        raise EnvironmentFault(f"{path} cannot be written: {failed.strerror}", hint="choose another --out") from None


def _beside(images: Tensor) -> Tensor:
    """Maps (n, channels, height, width) to (channels, height, n * (width + gap)), white between."""
    padded = torch.nn.functional.pad(images, (0, _GAP), value=images.max().item())
    return torch.cat(list(padded), dim=-1)
