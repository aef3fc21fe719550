"""The tiny towers and tables of examples/towers, and configurations for them.

The package index's torchvision has operators for GPUs, which a torch for CPUs cannot load. timm uses none of them: they
are declared here, so that the rest of torchvision can be imported.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "towers"
_declared = torch.library.Library("torchvision", "FRAGMENT")


def declare_operators() -> None:
    """Before timm is imported."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def example() -> ModuleType:
    """examples/towers/make.py, or the test is skipped."""
    declare_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in ("PIL", "timm", "transformers"):
            pytest.importorskip(library)
    spec = importlib.util.spec_from_file_location("towers_example", EXAMPLE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def photos(**model: Any) -> dict[str, Any]:
    """A party with images, and a column of numbers if its tower is frozen."""
    columns = {"columns": ["photo"]} if model.get("tune") else {}
    return {
        "data": {"source": "csv", "path": "photos.csv", "key": "product", "types": {"photo": "image"}, **columns},
        "model": {"name": "timm/test_resnet", "weights": "tower.safetensors", **model},
    }


def notes(**model: Any) -> dict[str, Any]:
    """A party with texts."""
    return {
        "data": {"source": "csv", "path": "notes.csv", "key": "product", "types": {"note": "text"}},
        "model": {"name": "transformers/bert", "weights": "bert", "length": 8, **model},
    }


def tree(parties: dict[str, Any], **federation: Any) -> dict[str, Any]:
    """A federation of these parties, whose rows are matched by their order."""
    agreed = {"id": "shop", "protocol": {"name": "split", "embedding": 4}, "rounds": 6, "batch": 8, "classes": 2}
    return {
        "federation": {**agreed, "parties": [*parties], "align": "none", **federation},
        "server": {"labels": {"source": "csv", "path": "returns.csv", "key": "product", "label": "returned"}},
        "parties": parties,
    }
