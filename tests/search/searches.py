"""Tiny federations to search over: 240 handwritten digits, two parties."""

from __future__ import annotations

from typing import Any

import colonnade
from colonnade.search.found import Search

LR = {"every_party.optimiser.lr": {"low": 0.001, "high": 0.5, "log": True}}


def tiny(**federation: Any) -> dict[str, Any]:
    """A configuration of few rows and rounds."""
    return {
        "federation": {
            "id": "tiny", "protocol": {"name": "split", "embedding": 8}, "parties": 2, "classes": 10, "epochs": 2,
            "batch": 64, "seed": 0, "rows": {"train": 128, "validation": 60, "test": 60}, **federation,
        },
        "server": {"labels": {"source": "sklearn", "name": "digits"}, "optimiser": {"name": "sgd", "lr": 0.1}},
        "every_party": {
            "data": {"source": "sklearn", "name": "digits", "split": "columns"}, "model": {"name": "mlp", "hidden": 8},
            "optimiser": {"name": "sgd", "lr": 0.1},
        },
    }  # fmt: skip


def search(out: Any, **more: Any) -> Search:
    """Three trials over a learning rate."""
    settings: dict[str, Any] = {"trials": 3, "space": LR, "progress": False, "out": out} | more
    return colonnade.tune(settings.pop("config", tiny()), **settings)
