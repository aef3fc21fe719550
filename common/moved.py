"""Modules and names that moved: imports from the old place work for one more version, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES: Mapping[str, str] = {
    "client.membership": "client.member",
    "client.membership.dialer": "client.dialling.membership",
    "client.membership.instructions": "client.dialling.instructions",
    "client.models": "client.training",
    "client.run": "client.member",
    "common.checkpointing": "common.run",
    "common.coded_computing": "common.aggregation",
    "common.compression": "common.messaging",
    "common.crypto.pki.probe": "client.dialling.dial",
    "common.embeddings": "common.models",
    "common.models.shaped": "common.privacy.shaped",
    "common.network": "common.observability",
    "common.network.grpc_bounds": "common.wire.grpc_bounds",
    "common.network.proxy": "client.dialling.proxy",
    "common.numerics": "common.models",
    "common.numerics.class_weights": "server.training.classes",
    "common.numerics.differences": "server.training.fusion.differences",
    "common.numerics.field": "common.aggregation.field",
    "common.numerics.fixed_point": "common.aggregation.fixed_point",
    "common.numerics.integers": "common.aggregation.integers",
    "common.numerics.ring": "common.aggregation.fixed_point",
    "common.observability.capture": "client.transcript.capture",
    "common.prediction": "common.contracts",
    "common.prediction.batches": "common.data.scored_rows",
    "common.prediction.messages": "common.contracts.prediction",
    "common.runtime": "common.run",
    "common.secure_aggregation": "common.aggregation",
    "common.transcript": "client.transcript",
    "common.wire.dial": "client.dialling.dial",
    "common.wire.listen": "server.member.listen",
    "server.aggregation.sums": "server.aggregation.masked_sums",
    "server.divergence": "server.training",
    "server.evaluation": "server.training.metrics",
    "server.evaluation.score": "server.training.metrics.quality",
    "server.fusion": "server.training.fusion",
    "server.fusion.active_joint": "server.training.fusion.active",
    "server.fusion.combined": "server.training.fusion.joint",
    "server.fusion.weighted": "server.training.fusion.joint",
    "server.membership": "server.member",
    "server.reporting": "server.member",
    "server.run": "server.member",
    "training": "runs",
}
"""New places of modules and packages below `colonnade`; those of 0.2 go in 0.4."""


def new_place(module: str) -> str | None:
    """The name that a module of `colonnade` has now; None if it did not move."""
    parts = module.removeprefix("colonnade.").split(".")
    for length in range(len(parts), 0, -1):
        if (place := MODULES.get(".".join(parts[:length]))) is not None:
            return ".".join(("colonnade", place, *parts[length:]))
    return None


class MovedModules:
    """A finder and loader that imports a module by its old name as the new one, so that it exists only once.

    It derives from no class of `importlib.abc`, whose import takes as long as all of `import colonnade`.
    """

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if not fullname.startswith("colonnade.") or (place := new_place(fullname)) is None:
            return None
        warnings.warn(f"{fullname} is now {place}: import it from there", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, self, origin=place, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module was executed under its new name, and only got the old spec."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def accept_old_places() -> None:
    """Lets this process import modules by their old names."""
    sys.meta_path.insert(0, MovedModules())  # before the one that would load a moved package's files a second time


def moved(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`."""

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{name} is now in {names[name]}: import it from there", DeprecationWarning, stacklevel=2)
        return getattr(import_module(names[name]), name)

    return found
