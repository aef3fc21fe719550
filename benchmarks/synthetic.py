"""Federations on columns of noise, in any size that a curve needs, without a data set.

The number of training rows is a power of two, so that batch sizes that are powers of two divide it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from colonnade.common.config.members import Config
from colonnade.common.parsing.file import parse

TRAINING, TEST, COLUMNS, CLASSES = 8192, 256, 800, 10
TAU = 5  # local steps of a VIMADMM round


@dataclass(frozen=True)
class Setting:
    """One point of a curve.

    Args:
        protocol: split, vimadmm or fedvs.
        width: of a party's embedding.
        hidden: width of a bottom model's first layer; FedVS's polynomials have none.
    """

    protocol: str
    parties: int = 4
    batch: int = 256
    width: int = 64
    hidden: int = 128
    segments: int = 1

    def config(self, rounds: int) -> Config:
        """A federation of `rounds` rounds over the files that `write` leaves; it is evaluated once, at its end."""
        return parse(self.tree(rounds))

    def tree(self, rounds: int) -> dict[str, Any]:
        more = {"vimadmm": {"tau": TAU}, "fedvs": {"segments": self.segments, "masks": 1, "masked_answers": False}}
        model = (
            {"name": "polynomial", "layers": 1} if self.protocol == "fedvs" else {"name": "mlp", "hidden": self.hidden}
        )
        return {
            "federation": {
                "id": "scaling",
                "protocol": {"name": self.protocol, "embedding": self.width, **more.get(self.protocol, {})},
                "parties": self.parties,
                "classes": CLASSES,
                "rounds": rounds,
                "batch": self.batch,
                "rows": {"validation": 0, "test": TEST},
                "evaluate": {"every": rounds},
                "seed": 0,
            },
            "server": {"labels": {"source": "safetensors", "path": "labels.safetensors"}},
            "every_party": {
                "data": {"source": "safetensors", "path": "columns.safetensors", "split": "columns", "scale": "unit"},
                "model": model,
            },
        }

    def shares(self) -> list[int]:
        size, longer = divmod(COLUMNS, self.parties)
        return [size + (index < longer) for index in range(self.parties)]


def write(folder: Path, training: int = TRAINING) -> None:
    """Writes columns.safetensors, bytes, and labels.safetensors, classes, with `training` training rows."""
    draws = torch.Generator().manual_seed(0)
    rows = training + TEST
    values = torch.randint(256, (rows, COLUMNS), generator=draws, dtype=torch.uint8)
    save_file({"values": values}, folder / "columns.safetensors")
    save_file({"values": torch.arange(rows) % CLASSES}, folder / "labels.safetensors")
