"""The federation of the tests: the digits dataset of scikit-learn, its columns divided among the parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.common.contracts.registry import CONTRACTS


def digits(protocol: Mapping[str, Any], /, **federation: Any) -> dict[str, Any]:
    """A configuration tree: four parties with 16 of 64 columns each, 1797 rows, ten classes.

    Of a scorecard, which has two: 569 rows of scikit-learn's breast cancer, seven columns or eight a party.

    Args:
        protocol: the section `federation.protocol`, with its `name`.
        federation: other keys of `federation`; they replace the defaults.
    """
    two = CONTRACTS[protocol["name"]].config.cards
    labels = {"source": "sklearn", "name": "breast_cancer" if two else "digits"}
    columns = {**labels, "split": "columns"}
    tree: dict[str, Any] = {
        "federation": {
            "id": "test",
            "parties": 4,
            "classes": 2 if two else 10,
            "epochs": 2,
            "batch": 256,
            "seed": 0,
            "public_start": True,  # runs are compared to the last bit
            "protocol": dict(protocol),
            **federation,
        },
        "server": {"labels": labels},
        "every_party": {"data": columns},
    }
    if CONTRACTS[protocol["name"]].active:
        tree["server"]["active"] = {"data": dict(columns)}
    return tree
