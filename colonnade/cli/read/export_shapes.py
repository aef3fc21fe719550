"""Parts of an additive model as JSON, from which any program computes scores: docs/protocols/additive.md, "Export"."""

from __future__ import annotations

from typing import Any

from colonnade.client.training.trees.points import ShapeSum
from colonnade.server.training.trees.score_sum import ScoreSum

FILE = "shapes.json"
_SERVER, _PARTY = ({"schema": f"colonnade.shapes.{member}", "version": 1} for member in ("server", "party"))


def server_shapes(joint: ScoreSum, record: dict[str, Any]) -> dict[str, Any]:
    """Where scores start."""
    if len(joint.start) == 1 and record["output"]["classes"]:
        record["output"]["what"] = "logit of the second class"
    return {**_SERVER, **record, "start": joint.start.tolist()}


def party_shapes(part: ShapeSum, record: dict[str, Any]) -> dict[str, Any]:
    """What each bin of the party's columns and pairs adds to the scores."""
    return {**_PARTY, **record, **part.described()}
