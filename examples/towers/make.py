"""Writes a shop's tables and two towers with weights at random: `python make.py`, then `colonnade up shop.yaml`.

Of 120 products a party has photos and prices, another one descriptions, and the server whether they were sent back. A
real tower has weights of its library's hub, which you fetch once and put in place of these.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image

ARCHITECTURE, LENGTH = "test_resnet", 8
_WORDS = 20


def image_tower(folder: Path, seed: int = 0) -> None:
    """`tower.safetensors`, as timm's own weights are: with a classifier, which is left out."""
    import timm  # noqa: PLC0415

    torch.manual_seed(seed)
    weights = timm.create_model(ARCHITECTURE, pretrained=False).state_dict()
    safetensors.torch.save_file(weights, folder / "tower.safetensors")


def text_tower(folder: Path) -> None:
    """`bert/`, as `save_pretrained` writes a model and its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast  # noqa: PLC0415

    numbers = {"[PAD]": 0, "[UNK]": 1, **{f"w{number}": number + 2 for number in range(_WORDS)}}
    made = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder / "bert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(numbers), max_position_embeddings=LENGTH, **sizes)).save_pretrained(
        folder / "bert"
    )


def tables(folder: Path, rows: int = 120) -> None:
    """`photos.csv` with its images, `notes.csv` and `returns.csv`."""
    draw = np.random.default_rng(0)
    (folder / "photos").mkdir(exist_ok=True)
    files = {name: (folder / f"{name}.csv").open("w", newline="") for name in ("photos", "notes", "returns")}
    writers = {name: csv.writer(file) for name, file in files.items()}
    for name, columns in (("photos", ["photo", "price"]), ("notes", ["note"]), ("returns", ["returned"])):
        writers[name].writerow(["product", *columns])
    for row in range(rows):
        returned = row % 2
        pixels = draw.integers(0, 60, (12, 15, 3)).astype(np.uint8)
        pixels[..., returned] += 190  # red ones are kept, green ones sent back
        Image.fromarray(pixels).save(folder / "photos" / f"{row}.png")
        words = returned * _WORDS // 2 + draw.integers(0, _WORDS // 2, 4)
        writers["photos"].writerow([f"p{row}", f"photos/{row}.png", f"{9 + draw.random():.2f}"])
        writers["notes"].writerow([f"p{row}", " ".join(f"w{word}" for word in words)])
        writers["returns"].writerow([f"p{row}", returned])
    for file in files.values():
        file.close()


if __name__ == "__main__":
    here = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    tables(here)
    image_tower(here)
    text_tower(here)
