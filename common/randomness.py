"""Random numbers of models (dropout, initialisation): seeded, and part of every checkpoint.

Not of privacy: noise and keys are drawn elsewhere, and are never restored.
"""

from __future__ import annotations

import hashlib

import torch


def seeded_generator(seed: int, *whose: str | int) -> torch.Generator:
    """Torch's own generator of this process, seeded from the federation's seed and whose it is."""
    digest = hashlib.sha256("/".join(map(str, (seed, *whose))).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7]))
    return torch.default_generator
