from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from colonnade.common.errors import EnvironmentFault


def choose_device(wanted: str, index: int = 0, *, repeatable: bool = True) -> torch.device:
    """The configured device; also selects a GPU's kernels.

    Args:
        wanted: `auto` (a GPU if this process sees one, assigned by `index`; else the CPU), `cpu`, `cuda` (a GPU,
            assigned by `index`) or `cuda:N`.
        index: position of this process among several on this machine.
        repeatable: True for convolution kernels with reproducible bits; False for the fastest, and TF32.

    Raises EnvironmentFault if this process does not see such a GPU.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if wanted == "auto" and not gpus:
        return torch.device("cpu")
    if wanted == "auto" or (wanted == "cuda" and gpus):
        return _with_kernels(torch.device("cuda", index % gpus), repeatable)
    device = torch.device(wanted)
    if (device.index or 0) >= gpus:
        raise EnvironmentFault(
            f"device {wanted}: this process sees {gpus} GPUs", hint="use `device: auto` or `device: cpu`"
        )
    return _with_kernels(device, repeatable)


def _with_kernels(device: torch.device, repeatable: bool) -> torch.device:
    if device.type == "cuda":
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = repeatable, not repeatable
        torch.set_float32_matmul_precision("highest" if repeatable else "high")
    return device


def release_free_memory() -> None:
    """Returns freed memory to the system: Arrow's, and with glibc all other."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Processor threads of torch in the block; 0 leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
