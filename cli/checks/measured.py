"""What attackers on columns found of a table that everybody has, and the cell that is nearest to a configuration.

`python -m benchmarks.columns` measures, and writes the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

PLACE = Path(__file__).with_name("measured.json")
_DEEPEST = 2  # hidden layers that were measured
_CONVOLUTION = nn.modules.conv._ConvNd


def hidden_layers(model: nn.Module) -> int:
    """Number of layers with weights before the last one."""
    return max(sum(isinstance(module, nn.Linear | _CONVOLUTION) for module in model.modules()) - 1, 0)


def nearest(layers: int, ratio: float, *, blinded: bool) -> Mapping[str, Any]:
    """The cell of all rounds that is nearest.

    Args:
        layers: hidden ones of the bottom model; more than two are taken as two.
        ratio: width times epochs, over the columns behind a message.
        blinded: of sums, not of a party's embeddings.
    """
    of = "sum" if blinded else "clear"
    fit: list[dict[str, Any]] = [
        cell
        for cell in json.loads(PLACE.read_text(encoding="utf-8"))["cells"]
        if cell["of"] == of and cell["rounds"] == "all" and cell["layers"] == min(layers, _DEEPEST)
    ]
    return min(fit, key=lambda cell: abs(math.log(cell["ratio"] / max(ratio, 1e-9))))


def quoted(layers: int, ratio: float, *, blinded: bool) -> str:
    """What the nearest cell says, in a line."""
    cell = nearest(layers, ratio, blinded=blinded)
    found, public = cell["secret"], cell["public"]["known-start"]["score"]
    behind = "blinded sums of three parties" if blinded else "a party's embeddings"
    deep = ("no hidden layer", "one hidden layer", "two hidden layers")[cell["layers"]]
    products = found["products"]
    return (
        f"a curious server can estimate columns; nearest measured, of {behind}, {deep}, {cell['ratio']:.2g} numbers a "
        f"column: R2 {products['score']['mean']:.2f} by products of rows ({products['more']['rotated']['mean']:.2f} up "
        f"to a rotation), {found['components']['score']['mean']:.2f} by components, "
        f"{found['known-rows']['score']['mean']:.2f} from 1 % known rows; with federation.public_start "
        f"{public['mean']:.2f}, {public['exact']:.0%} of the rows found (docs/attacks.md, columns)"
    )
