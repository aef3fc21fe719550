"""Torch's own generators, which modules draw dropout and the like from: saved in every checkpoint."""

from __future__ import annotations

import torch

from colonnade.common.data.draws import Draws
from colonnade.common.run.state import State


def keep_generators(state: State, device: torch.device, draws: Draws) -> None:
    """Registers torch's own generators, of the CPU and of the member's GPU, in its state; a GPU's takes a seed of 64
    bits.
    """
    state.keep("random", lambda: _begun(draws.generator("random")))
    if device.type == "cuda":
        state.keep("random on the device", lambda: _begun_there(device, draws.number("random")))


def _begun(draws: torch.Generator) -> torch.Generator:
    torch.default_generator.set_state(draws.get_state())
    return torch.default_generator


def _begun_there(device: torch.device, seed: int) -> torch.Generator:
    torch.cuda.init()  # type: ignore[no-untyped-call]  # before it there is no generator to seed
    torch.cuda.manual_seed_all(seed)
    return torch.cuda.default_generators[device.index]
