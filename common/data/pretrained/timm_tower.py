"""Image towers of timm. Slow to import."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path

import PIL
import timm
import timm.data
import torch
from PIL import Image
from torch import Tensor, nn

from colonnade.common.config.models import TimmConfig
from colonnade.common.data.pretrained.tower import (
    PretrainedTower,
    Unreadable,
    digest_of,
    fill,
    read_weights,
)
from colonnade.common.errors import ConfigError, nearest

_FORMS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""Of images that are read. Others call programs, or have been a way into the process."""

_BROKEN = (
    OSError, ValueError, SyntaxError, EOFError, ArithmeticError, LookupError, TypeError, struct.error, zlib.error,
)  # fmt: skip
_COLOURS = 3


def open_timm(config: TimmConfig, base: Path) -> PretrainedTower:
    """Raises ConfigError: timm has no such architecture, or the weights are not its."""
    path, name = base / Path(config.weights).expanduser(), config.architecture
    known = timm.list_models()
    if name.partition(".")[0] not in known:
        raise ConfigError(f"model.architecture = {name!r}: timm has none of this name{nearest(name, known)}")
    weights = read_weights(path)
    with torch.random.fork_rng(devices=[]):
        made = timm.create_model(name, pretrained=False, num_classes=0)
    classifier = made.pretrained_cfg.get("classifier") or ()
    fill(made, weights, path, (classifier,) if isinstance(classifier, str) else classifier)
    found = timm.data.resolve_model_data_config(made)
    prepared = timm.data.create_transform(**found, is_training=False, normalize=False)
    shape = tuple(found["input_size"])
    if shape[0] != _COLOURS:
        raise ConfigError(f"model.architecture = {name!r} reads {shape[0]} channels", hint="take one of colour images")

    def read(content: bytes) -> Tensor:
        pixels: Tensor = prepared(_image(content))
        return pixels

    about = {**found, "architecture": name, "timm": timm.__version__, "pillow": PIL.__version__}
    module = _Images(made, found["mean"], found["std"])
    return PretrainedTower(module, made.num_features, shape, read, digest_of([path], **about))


class _Images(nn.Module):
    """Pixels of 0 to 255, (rows, channels, height, width), normalised as the architecture asks."""

    mean: Tensor
    std: Tensor

    def __init__(self, inner: nn.Module, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", 255.0 * torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", 255.0 * torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        made: Tensor = self.inner((pixels.float() - self.mean) / self.std)
        return made


def _image(content: bytes) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=_FORMS) as opened:
                return opened.convert("RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable("has too many pixels") from None
    except _BROKEN as wrong:
        raise Unreadable(f"is no image that can be read ({', '.join(_FORMS)}): {type(wrong).__name__}") from None
