"""Size of the noise of `federation.privacy` beside the values that it hides: docs/choosing.md."""

from __future__ import annotations

import math

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.privacy.accounting.plan import PrivacyPlan

DROWNED = 5.0
"""Noise over values, as norms, from which models of small tables are at chance."""


def noise_over_values(plan: PrivacyPlan, batch: int, width: int) -> float:
    """Expected norm of the noise over the largest norm of the values: of a whole message, or of a row's embedding.

    Args:
        plan: of the run.
        batch: rows of a message.
        width: numbers of a row.
    """
    numbers = width if plan.strict == "row" else batch * width
    return plan.deviation / plan.config.clip * math.sqrt(numbers) / plan.gain


def drowned(federation: FederationConfig, schedule: Schedule) -> str:
    """A sentence about noise that leaves nothing to learn from; "" where there is less, or its size is not known."""
    plan = schedule.privacy
    width = CONTRACTS[federation.protocol.name].limits_of(federation).get("width")
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
