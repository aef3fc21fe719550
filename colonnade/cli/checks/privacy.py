"""What a curious server could estimate of columns, by the table of docs/results/attacks.md; with noise, its size
compared with the values that it hides (docs/choosing.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.privacy.accounting.plan import PrivacyPlan

Made = tuple[nn.Module | None, tuple[int, ...]]
"""A party's bottom model, if the protocol has one and it was built, and the shape of its rows."""


def estimated(federation: FederationConfig, made: Mapping[str, Made], schedule: Schedule) -> str:
    """The measured case nearest to a configuration, or "" if embeddings have noise or do not leave.

    Args:
        made: every party's bottom model and the shape of its rows.
    """
    contract = CONTRACTS[federation.protocol.name]
    width = contract.width_of(federation)
    models = [model for model, _ in made.values() if model is not None]
    if (
        not models
        or len(models) < len(made)
        or width is None
        or not contract.exchange.embeddings
        or federation.privacy is not None
    ):
        return ""
    blinded = federation.protocol.blinded
    columns = [math.prod(shape) for _, shape in made.values()]
    behind = sum(columns) if blinded else min(columns)
    layers = min(map(hidden_layers, models))
    return quoted(layers, width * schedule.epoch(schedule.rounds) / max(behind, 1), blinded=blinded)


PLACE = Path(__file__).with_name("measured.json")
_DEEPEST = 2  # hidden layers that were measured
_CONVOLUTION = nn.modules.conv._ConvNd


def hidden_layers(model: nn.Module) -> int:
    """Number of layers with weights before the last one."""
    return max(sum(isinstance(module, nn.Linear | _CONVOLUTION) for module in model.modules()) - 1, 0)


def nearest(layers: int, ratio: float, *, blinded: bool) -> Mapping[str, Any]:
    """The nearest cell of all rounds.

    Args:
        layers: hidden layers of the bottom model; more than two count as two.
        ratio: width times epochs, over the columns behind a message.
        blinded: True for sums, False for a party's embeddings.
    """
    of = "sum" if blinded else "clear"
    fit: list[dict[str, Any]] = [
        cell
        for cell in json.loads(PLACE.read_text(encoding="utf-8"))["cells"]
        if cell["of"] == of and cell["rounds"] == "all" and cell["layers"] == min(layers, _DEEPEST)
    ]
    return min(fit, key=lambda cell: abs(math.log(cell["ratio"] / max(ratio, 1e-9))))


def quoted(layers: int, ratio: float, *, blinded: bool) -> str:
    """The nearest cell's result in a line."""
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
        f"{public['mean']:.2f}, {public['exact']:.0%} of the rows found (docs/results/attacks.md)"
    )


DROWNED = 5.0
"""Noise over values, as norms, from which models of small tables are at chance."""


def noise_over_values(plan: PrivacyPlan, batch: int, width: int) -> float:
    """Expected norm of the noise over the largest norm of the values, in a message or a row's embedding.

    Args:
        batch: rows of a message.
        width: numbers per row.
    """
    numbers = width if plan.strict == "row" else batch * width
    return plan.deviation / plan.config.clip * math.sqrt(numbers) / plan.gain


def drowned(federation: FederationConfig, schedule: Schedule) -> str:
    """A sentence about noise that prevents learning; "" if there is less, or its size is unknown."""
    plan = schedule.privacy
    contract = CONTRACTS[federation.protocol.name]
    width = federation.outputs if contract.exchange.sends == "logits" else contract.width_of(federation)
    if plan is None or width is None or plan.config.evaluate == "clean":
        return ""
    ratio = noise_over_values(plan, min(federation.batch, len(schedule.partition.train)), width)
    if ratio <= DROWNED:
        return ""
    of_what = "a row's embedding" if plan.strict == "row" else "a message"
    return (
        f"federation.privacy: the noise is {ratio:.0f} times as large as {of_what} may be (norms); above {DROWNED:g} a "
        "model of a few thousand rows is at chance: docs/choosing.md, Epsilon"
    )
