"""Settings of this process while a program or a notebook has called Colonnade."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from colonnade.common.run.files import private_files

_DEVICES = ("cpu", "cuda", "xpu", "mps")


@contextmanager
def own_settings() -> Iterator[None]:
    """Makes new files private and sets PyTorch's own defaults in the block; the caller's are restored at the end.

    Default dtype and device, gradient mode, autocast and determinism are those of a new process.
    """
    import torch  # noqa: PLC0415  # a second, which `import colonnade` does not take

    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    # `use_deterministic_algorithms` would import the compiler: seconds and a hundred megabytes.
    deterministic, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    with private_files(), ExitStack() as changed:
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
