from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import safetensors.torch
import torch
from torch import Tensor, nn

from colonnade.common.errors import CheckpointError

_T = TypeVar("_T")

_KINDS = {"dampening", "betas", "lr_decay", "alpha", "rho"}
"""Settings that only some optimisers have: SGD, Adam and AdamW, Adagrad, RMSprop, Adadelta."""


@runtime_checkable
class OwnState(Protocol):
    """A protocol's own object that a checkpoint can hold, such as a growing forest."""

    def state(self) -> Any:
        """Tensors, numbers, strings and None, in dicts, lists and tuples. It is copied before the next round."""

    def restore(self, saved: Any) -> None:
        """Restores what `state` returned. Raises ValueError, LookupError or TypeError if it does not fit."""


@dataclass(frozen=True)
class Snapshot:
    """A copy of a state at one moment, independent of the original objects.

    Args:
        tensors: by their path in `values`, on the CPU.
        values: kept objects by name, in JSON types; a tensor is {"tensor": its path}.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


class State:
    """Modules, optimisers, duals, generators by name: the content of a checkpoint, which a resume restores.

    A protocol side keeps everything that outlives a round here, so that it can be stopped and resumed: modules,
    optimisers, torch generators, own objects (`OwnState`), and tensors, lists and dicts that it changes in place.
    `restored` is the snapshot to resume from; None at the beginning of a run.
    """

    def __init__(self, restored: Snapshot | None = None) -> None:
        self._kept: dict[str, Any] = {}
        self._restored = restored or Snapshot()

    def keep(self, name: str, make: Callable[[], _T]) -> _T:
        """The object under a name: made at the first call, and restored if the snapshot holds it.

        Raises CheckpointError if the saved value under this name does not fit the object that `make` returned.
        """
        if name not in self._kept:
            made = make()
            if name in self._restored.values:
                _restore(name, made, self._restored)
            self._kept[name] = made
        return self._kept[name]  # type: ignore[no-any-return]

    def capture(self) -> Snapshot:
        """A copy of all kept objects: the caller may continue at once."""
        tensors: dict[str, Tensor] = {}
        values = {name: _pack(name, _contents(name, kept), tensors) for name, kept in self._kept.items()}
        return Snapshot(tensors, values)

    def __getitem__(self, name: str) -> Any:
        return self._kept[name]

    def __contains__(self, name: str) -> bool:
        return name in self._kept


def _contents(name: str, kept: Any) -> Any:
    if isinstance(kept, torch.Generator):
        return kept.get_state()
    if isinstance(kept, nn.Module | torch.optim.Optimizer):
        return dict(kept.state_dict())
    if isinstance(kept, Tensor | dict | list):
        return kept
    if isinstance(kept, OwnState):
        return kept.state()
    raise TypeError(f"state {name!r}: a {type(kept).__name__} cannot be saved, or not be changed in place")


def _restore(name: str, made: Any, restored: Snapshot) -> None:
    try:
        saved = _unpack(restored.values[name], restored.tensors)
        match made:
            case torch.Generator():
                made.set_state(saved)
            case torch.optim.Optimizer():
                _restore_optimiser(made, deepcopy(saved))  # it keeps the tensors that it is given
            case nn.Module():
                made.load_state_dict(saved)
            case Tensor():
                if made.shape != saved.shape or made.dtype != saved.dtype:
                    raise ValueError(f"{saved.dtype} {tuple(saved.shape)} for {made.dtype} {tuple(made.shape)}")
                with torch.no_grad():
                    made.copy_(saved)
            case dict():
                made.clear()
                made.update(deepcopy(saved))
            case list():
                made[:] = deepcopy(saved)
            case OwnState():
                made.restore(deepcopy(saved))
            case _:
                raise TypeError(f"a {type(made).__name__} cannot be restored")
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as unfit:
        first = next(iter(str(unfit).splitlines()), type(unfit).__name__)
        raise CheckpointError(
            f"the checkpoint's {name} does not fit: {first}",
            hint="resume with the model, head and optimiser that the run began with",
        ) from unfit


def _restore_optimiser(made: torch.optim.Optimizer, saved: Any) -> None:
    """Restores momenta and counts of steps. Rates and other settings stay as configured: a resume may change them.

    Raises ValueError for an optimiser of another kind, whose momenta mean something else.
    """
    settings = [{key: value for key, value in group.items() if key != "params"} for group in made.param_groups]
    if [_KINDS & group.keys() for group in saved["param_groups"]] != [_KINDS & own.keys() for own in settings]:
        raise ValueError(f"it is of another kind than {type(made).__name__}")
    made.load_state_dict(saved)
    for group, own in zip(made.param_groups, settings, strict=True):
        group.update(own)


def _pack(path: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value in JSON types, its tensors copied under their paths."""
    match value:
        case Tensor():
            tensors[path] = value.detach().to("cpu", copy=True).contiguous()
            return {"tensor": path}
        case dict():
            items = [[_plain(path, key), _pack(f"{path}.{key}", below, tensors)] for key, below in value.items()]
            return {"items": items}  # pairs: JSON would turn an optimiser's integer keys into text
        case tuple() | list():
            parts = [_pack(f"{path}.{place}", below, tensors) for place, below in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": parts}
        case _:
            return _plain(path, value)


def _plain(path: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"state {path!r}: a {type(value).__name__} cannot be saved")


def _unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    match value:
        case {"tensor": path}:
            return tensors[path]
        case {"items": items}:
            return {key: _unpack(below, tensors) for key, below in items}
        case {"tuple": parts}:
            return tuple(_unpack(below, tensors) for below in parts)
        case {"list": parts}:
            return [_unpack(below, tensors) for below in parts]
        case _:
            return value


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
