"""PyTorch's own defaults for a run that another program starts: a notebook may have changed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_DEVICES = ("cpu", "cuda", "xpu", "mps")


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Default dtype and device, gradient mode, autocast and determinism as in a new process; restored at the end."""
    import torch  # noqa: PLC0415  # a second, which `import colonnade` does not take

    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    # `use_deterministic_algorithms` would import the compiler: seconds and a hundred megabytes.
    deterministic, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    with ExitStack() as changed:
        changed.enter_context(torch.inference_mode(mode=False))
        changed.enter_context(torch.enable_grad())
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                changed.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":  # else every operation would cost more
            changed.enter_context(torch.device("cpu"))
        try:
            torch.set_default_dtype(torch.float32)
            torch.set_float32_matmul_precision("highest")
            torch.set_deterministic_debug_mode("default")
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_float32_matmul_precision(precision)
            torch.set_deterministic_debug_mode(deterministic)
            torch.set_num_threads(threads)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Processor threads of torch in the block; 0 leaves them as they are."""
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
