"""Parts of additive models and of scorecards as JSON, from which any program computes scores.

The forms: docs/protocols/additive.md and docs/protocols/scorecard.md, "Export".
"""

from __future__ import annotations

from typing import Any

from colonnade.client.training.card import Card
from colonnade.client.training.trees.shapes import ShapeSum
from colonnade.common.protocols.scorecard import Config
from colonnade.server.training.trees.gradients import ScoreSum

SHAPES, CARD = "shapes.json", "scorecard.json"


def server_shapes(joint: ScoreSum, protocol: Any, record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A file's name, and where scores start; of a scorecard with the scale of points.

    Args:
        protocol: its config.
    """
    if len(joint.start) == 1 and record["output"]["classes"]:
        record["output"]["what"] = "logit of the second class"
    found = {**record, "start": joint.start.tolist()}
    if isinstance(protocol, Config):
        return CARD, {**_schema("scorecard.server"), **found, "scale": protocol.scale(float(joint.start[0]))}
    return SHAPES, {**_schema("shapes.server"), **found}


def party_shapes(part: ShapeSum, record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A file's name, and what each bin of the party's columns and pairs adds to the scores, or its card."""
    if isinstance(part, Card):
        return CARD, {**_schema("scorecard.party"), **record, **part.record()}
    return SHAPES, {**_schema("shapes.party"), **record, **part.described()}


def _schema(kind: str) -> dict[str, Any]:
    return {"schema": f"colonnade.{kind}", "version": 1}
