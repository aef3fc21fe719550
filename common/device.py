"""Where tensors live and how many threads work on them."""

from __future__ import annotations

import torch

from common.errors import EnvironmentFault


def choose_device(wanted: str, seat: int = 0) -> torch.device:
    """The device that a config names.

    Args:
        wanted: `auto` (a GPU if this process sees one, dealt by seat; else the CPU), `cpu` or `cuda:N`.
        seat: which of several processes on this machine asks.

    Raises:
        EnvironmentFault: `cuda:N` where this process sees no such GPU.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if wanted == "auto":
        return torch.device("cuda", seat % gpus) if gpus else torch.device("cpu")
    device = torch.device(wanted)
    if device.index >= gpus:
        raise EnvironmentFault(
            f"device {wanted}: this process sees {gpus} GPUs", hint="use `device: auto` or `device: cpu`"
        )
    return device
