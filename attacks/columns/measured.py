"""What these attackers found of a table that everybody has, and the cell that is nearest to a configuration.

`python -m benchmarks.columns` measures, and writes the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

PLACE = Path(__file__).with_name("measured.json")
_DEEPEST = 2  # hidden layers that were measured
_CONVOLUTION = nn.modules.conv._ConvNd


def hidden_layers(model: nn.Module) -> int:
    """Number of layers with weights before the last one."""
    return max(sum(isinstance(module, nn.Linear | _CONVOLUTION) for module in model.modules()) - 1, 0)


def nearest(layers: int, ratio: float, *, blinded: bool, cells: Sequence[Mapping[str, Any]] | None = None) -> Any:
    """The cell of all rounds that is nearest.

    Args:
        layers: hidden ones of the bottom model; more than two are taken as two.
        ratio: width times epochs, over the columns behind a message.
        blinded: of sums, not of a party's embeddings.
        cells: of the table; None for the kept one.
    """
    every = json.loads(PLACE.read_text())["cells"] if cells is None else cells
    of = "sum" if blinded else "clear"
    fit = [
        cell
        for cell in every
        if cell["of"] == of and cell["rounds"] == "all" and cell["layers"] == min(layers, _DEEPEST)
    ]
    return min(fit, key=lambda cell: abs(math.log(cell["ratio"] / max(ratio, 1e-9))))


def quoted(layers: int, ratio: float, *, blinded: bool) -> str:
    """What this cell says, in one line."""
    cell = nearest(layers, ratio, blinded=blinded)
    found = cell["secret"]
    behind = "blinded sums of three parties" if blinded else "a party's embeddings"
    deep = {0: "no hidden layer", 1: "one hidden layer", 2: "two hidden layers"}[cell["layers"]]
    products, parts, rows = (found[name] for name in ("products", "components", "known-rows"))
    public = cell["public"]["known-start"]["score"]
    return (
        f"columns can be estimated from {behind}: measured nearest ({deep}, {cell['ratio']:.2g} numbers a column): R2 "
        f"{products['score']['mean']:.2f} from gradients and marginals "
        f"({products['more']['rotated']['mean']:.2f} up to a rotation), {parts['score']['mean']:.2f} from independent "
        f"components, {rows['score']['mean']:.2f} from 1 % known rows; with a public start {public['mean']:.2f}, and "
        f"{public['exact']:.0%} of the rows exactly (docs/attacks.md, columns)"
    )
