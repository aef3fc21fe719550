"""A device beside the CPU that every machine has: its tensors lie in the CPU's memory, and obey the rules of a GPU.

An operation on tensors of both devices fails, numpy cannot see the second device, and a generator of the CPU cannot
draw there. So a test finds a forgotten `.to(device)` on a machine without a GPU. PyTorch lets Python define such a
device under the name that it keeps for backends of others (PrivateUse1). A process must define it before its first
backward pass, which starts a thread for every existing device: `second_process` is a process for that.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

from colonnade.common.messaging.outgoing import Outgoing
from tests.support.bundled import parse_once

_PLACES = (torch.int32, torch.int64)  # dtypes of row numbers, which PyTorch itself brings to the device
_MOVES = {"aten::copy_", "aten::_to_copy"}
_MADE = Outgoing._made.__func__  # type: ignore[attr-defined]


@contextmanager
def second_device() -> Iterator[torch.device]:
    """The device, usable inside the block."""
    _register()
    with _Dispatch():
        yield torch.device("second:0")


def second_process() -> ProcessPoolExecutor:
    """A process that has the device."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _register)


@cache
def _register() -> None:
    torch.set_num_threads(1)
    parse_once()
    backend_registration._setup_privateuseone_for_python_backend("second")
    Outgoing._made = classmethod(_made)  # type: ignore[method-assign, assignment]


class _Second(torch.Tensor):
    """A tensor of the second device around one of the CPU."""

    memory: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> _Second:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=torch.device("second:0"),
        )  # fmt: skip
        made.memory = inner
        return made

    def __repr__(self, **_: Any) -> str:
        return f"second({self.memory})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.tolist:
            return args[0].memory.tolist()
        if func is torch.Tensor.__getitem__ and isinstance(args[1], list):  # PyTorch would make a tensor of it unseen
            args = (args[0], torch.tensor(args[1]))
        if func == torch.Tensor.data.__set__:  # it changes PyTorch's metadata of the tensor, and must change its memory
            args[0].memory = args[1].memory
        with torch._C.DisableTorchFunctionSubclass():  # which would make `_Second` of every result
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def _made(kind: type[Outgoing], value: torch.Tensor, mechanism: str) -> Outgoing:
    """`Tensor._make_subclass` does not call `_Second`."""
    if not isinstance(value, _Second):
        return _MADE(kind, value, mechanism)
    made = _subclass(kind)(value.memory.detach())
    made.mechanism = mechanism
    return made


@cache
def _subclass(kind: type[torch.Tensor]) -> type[_Second]:
    """Tensors of the second device that are also of another class."""
    return type(f"_Second{kind.__name__}", (_Second, kind), {"__new__": _Second.__new__})


class _Dispatch(TorchDispatchMode):
    """Intercepts calls that make tensors without tensor arguments."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the CPU's memory; its results belong to the device that a GPU's would belong to."""
    name, tensors = func._schema.name, list(_tensors((args, kwargs)))
    ours = [t for t in tensors if isinstance(t, _Second)]
    if ours and name not in _MOVES:
        _refuse_mixing(name, tensors)
    wanted = kwargs.get("device")
    stays = bool(ours) if wanted is None else torch.device(wanted).type == "second"
    if name == "aten::copy_":
        stays = isinstance(args[0], _Second)
    if stays and kwargs.get("generator") is not None:
        raise RuntimeError(f"{name}: a generator of the CPU draws for the second device")
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner = func(*_mapped(_unwrapped, args), **_mapped(_unwrapped, kwargs))
    if not stays:
        return inner
    out = _mapped(_Second, inner)
    aliased = ours and any(argument.alias_info for argument in func._schema.arguments)
    return return_and_correct_aliasing(func, args, kwargs, out) if aliased else out


def _refuse_mixing(name: str, tensors: list[torch.Tensor]) -> None:
    """Refuses as a GPU does: a number may come from the CPU, and so may the places of an index."""
    for place, tensor in enumerate(tensors):
        index = place > 0 and name.startswith(("aten::index", "aten::_index")) and tensor.dtype in _PLACES
        if not isinstance(tensor, _Second) and tensor.dim() and not index:
            raise RuntimeError(f"{name}: tensors of the CPU and of the second device")


def _unwrapped(value: torch.Tensor) -> torch.Tensor:
    return value.memory if isinstance(value, _Second) else value


def _mapped(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """A value of an operation with its tensors changed. PyTorch's `tree_map` takes longer than the operation."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_mapped(change, part) for part in value])
    return {key: _mapped(change, part) for key, part in value.items()} if isinstance(value, dict) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
