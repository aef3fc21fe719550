"""Tiny towers with weights at random, and a table of images and one of texts that they read.

The package index's torchvision has operators for GPUs, which a torch for CPUs cannot load. timm uses none of them: they
are declared here, so that the rest of torchvision can be imported.
"""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ARCHITECTURE, ROWS, LENGTH = "test_resnet", 24, 8
_WORDS = 20
_declared = torch.library.Library("torchvision", "FRAGMENT")


def timm() -> Any:
    """The library, or the test is skipped."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("timm")


def write_image_tower(folder: Path, seed: int = 0) -> Path:
    import safetensors.torch

    library = timm()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = library.create_model(ARCHITECTURE, pretrained=False).state_dict()  # with its classifier
    safetensors.torch.save_file(state, folder / "tower.safetensors")
    return folder / "tower.safetensors"


def write_text_tower(folder: Path) -> Path:
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{number}": number + 2 for number in range(_WORDS)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder / "bert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=LENGTH, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder / "bert")
    return folder / "bert"


def write_tables(folder: Path) -> None:
    """`photos.csv` (photo, price), `notes.csv` (note) and `labels.csv`, in one order; two classes that both show."""
    from PIL import Image

    draw = np.random.default_rng(0)
    (folder / "photos").mkdir()
    tables: dict[str, list[list[Any]]] = {"photos": [], "notes": [], "labels": []}
    for row in range(ROWS):
        label = row % 2
        pixels = draw.integers(0, 60, (12, 15, 3)).astype(np.uint8)
        pixels[..., label] += 190
        Image.fromarray(pixels).save(folder / "photos" / f"{row}.png")
        words = label * _WORDS // 2 + draw.integers(0, _WORDS // 2, 4)
        tables["photos"].append([f"photos/{row}.png", round(float(draw.random()), 3)])
        tables["notes"].append([" ".join(f"w{word}" for word in words)])
        tables["labels"].append([label])
    header = {"photos": ["photo", "price"], "notes": ["note"], "labels": ["label"]}
    for name, lines in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header[name], *lines])


def photos(**model: Any) -> dict[str, Any]:
    """A party with images, and a column of numbers if its tower is frozen."""
    columns = {"columns": ["photo"]} if model.get("tune") else {}
    return {
        "data": {"source": "csv", "path": "photos.csv", "types": {"photo": "image"}, **columns},
        "model": {"name": f"timm/{ARCHITECTURE}", "weights": "tower.safetensors", **model},
    }


def notes(**model: Any) -> dict[str, Any]:
    """A party with texts."""
    return {
        "data": {"source": "csv", "path": "notes.csv", "types": {"note": "text"}},
        "model": {"name": "transformers/bert", "weights": "bert", "length": LENGTH, **model},
    }


def tree(parties: dict[str, Any], **federation: Any) -> dict[str, Any]:
    agreed = {"id": "shop", "protocol": {"name": "split", "embedding": 4}, "rounds": 6, "batch": 8, "classes": 2}
    return {
        "federation": {**agreed, "parties": [*parties], "align": "none", **federation},
        "server": {"labels": {"source": "csv", "path": "labels.csv", "label": "label"}},
        "parties": parties,
    }
