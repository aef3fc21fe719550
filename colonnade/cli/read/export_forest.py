"""Parts of a forest as JSON, from which any program computes predictions: docs/protocols/secureboost.md, "Export"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from colonnade.client.training.local import Splits
from colonnade.server.training.fusion.joint import Decided
from colonnade.server.training.trees.forest import Tree

FILE = "forest.json"
_SERVER, _PARTY = ({"schema": f"colonnade.forest.{member}", "version": 1} for member in ("server", "party"))


def server_part(joint: Decided, names: Sequence[str], record: dict[str, Any]) -> dict[str, Any]:
    """Where scores start, and the trees: their nodes ask splits of parties by number."""
    if len(joint.start) == 1 and record["output"]["classes"]:
        record["output"]["what"] = "logit of the second class"
    trees = [{"output": tree.output, "nodes": list(_nodes(tree, names))} for tree in joint.forest.trees]
    return {**_SERVER, **record, "parties": list(names), "start": joint.start.tolist(), "trees": trees}


def _nodes(tree: Tree, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for node, party in enumerate(tree.party.tolist()):
        if party < 0:
            yield {"value": float(tree.value[node])}
            continue
        left, right = tree.children[node].tolist()
        gain = float(tree.gain[node])
        yield {"party": names[party], "split": int(tree.record[node]), "left": left, "right": right, "gain": gain}


def party_part(splits: Splits, record: dict[str, Any]) -> dict[str, Any]:
    """What is on the left of each of the party's splits, in the order of their numbers."""
    return {**_PARTY, **record, "splits": [left for _, left, _ in splits.described()]}
