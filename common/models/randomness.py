"""Random numbers of models (dropout, initialisation): seeded, and saved in every checkpoint.

Privacy noise and keys are drawn elsewhere, and are never restored.
"""

from __future__ import annotations

import hashlib

import torch

from colonnade.common.checkpointing.state import State


def keep_generators(state: State, device: torch.device, seed: int, *whose: str | int) -> None:
    """Registers the generators of a member's models in its state: torch's own, of the CPU and of its GPU."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]  # before it there is no generator to seed
    state.keep("random", lambda: seeded_generator(seed, *whose))
    if device.type == "cuda":
        state.keep("random on the device", lambda: torch.cuda.default_generators[device.index])


def seeded_generator(seed: int, *whose: str | int) -> torch.Generator:
    """Torch's own generator of this process; seeds it and its GPUs' from the federation's seed and an owner."""
    digest = hashlib.sha256("/".join(map(str, (seed, *whose))).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7]))
    return torch.default_generator
