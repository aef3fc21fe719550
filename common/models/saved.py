"""Parameters of a member's own models as one safetensors file."""

from __future__ import annotations

from collections.abc import Iterable

import safetensors.torch
from torch import Tensor, nn

from colonnade.common.run.state import State


def saved_parameters(state: State, names: Iterable[str]) -> bytes | None:
    """Parameters and buffers of the modules kept under `names` in a member's state, `NAME.PARAMETER`; None if it keeps
    none.
    """
    found: dict[str, Tensor] = {}
    for name in names:
        kept = state[name] if name in state else None  # noqa: SIM401  # a State is no mapping
        if isinstance(kept, nn.Module):
            found |= {f"{name}.{key}": value for key, value in kept.state_dict().items()}
        elif isinstance(kept, Tensor):
            found[name] = kept
    own = {name: value.detach().cpu().clone().contiguous() for name, value in found.items()}
    return safetensors.torch.save(own) if own else None
