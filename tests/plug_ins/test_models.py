"""Models of other packages: wrong ones, and those that fail."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from colonnade.common.errors import ConfigError
from colonnade.common.models.build import NamedModule
from colonnade.common.parsing.file import parse
from tests.support.federation import federate, tree
from tests.support.packages import Packages

SOURCE = """
import math
from torch import nn

class Flat(nn.Sequential):
    def __init__(self, shape, width=60, **more):
        assert not more, more
        super().__init__(nn.Flatten(), nn.Linear(math.prod(shape), width))

class Fussy(Flat):
    def forward(self, rows):
        if self.training and len(rows) != 32:  # the probe has 32 rows
            raise RuntimeError("these rows")
        return super().forward(rows)

def number(*sizes):
    return 3

nothing = None
"""
ENTRIES = {name: f"flat_model:{name}" for name in ("Flat", "Fussy", "number", "nothing")}
OF = r"colonnade-flat 1\.0"


def named(packages: Packages, model: Any, head: Any = "linear", source: str = SOURCE) -> None:
    packages.install("colonnade-flat", "models", ENTRIES, source)
    made = tree({"name": "split"}, rounds=2, epochs=0)
    made["every_party"]["model"], made["server"]["head"] = model, head
    federate(parse(made))


@pytest.mark.parametrize("model", ["Flat", {"name": "Flat"}, {"name": "Flat", "width": 60}])
def test_short_and_long_form(packages: Packages, model: Any) -> None:
    named(packages, model)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"name": "Flat", "width": 7}, "parties.party1.model makes 7 numbers of a row, and the protocol takes 60"),
        ({"name": "Flat", "depth": 7}, rf"parties.party1.model: the model Flat of {OF} failed: AssertionError"),
        ("number", rf"parties.party1.model: the model number of {OF}: it made int, expected a torch.nn.Module"),
        ("nothing", rf"parties.party1.model: the model nothing of {OF}: it is NoneType, expected a class"),
        ("Fussy", rf"the model Fussy of {OF} failed: RuntimeError: these rows"),
        ("Falt", r"every_party.model = 'Falt': expected mlp, .* \(did you mean 'Flat'\?\)"),
    ],
)  # fmt: skip
def test_a_wrong_model_is_refused_with_its_name(packages: Packages, model: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        named(packages, model)


def test_a_wrong_head_is_refused_with_its_name(packages: Packages) -> None:
    with pytest.raises(ConfigError, match=rf"the model number of {OF}: it made int"):
        named(packages, "mlp", "number")


def test_a_package_that_cannot_be_imported_affects_no_other_model(packages: Packages) -> None:
    named(packages, "mlp", source="import nowhere_at_all")
    packages.forget()
    made = tree({"name": "split"}, rounds=2, epochs=0)
    made["every_party"]["model"] = "Flat"
    with pytest.raises(ConfigError, match=rf"the model Flat of {OF} cannot be imported: ModuleNotFoundError"):
        federate(parse(made))


def test_the_named_module_is_the_module_for_torch() -> None:
    inner = nn.Linear(3, 2)
    module = NamedModule(inner, "any")
    rows = torch.rand(5, 3)
    for one in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(one(rows), inner(rows))
    program = torch.export.export(module, (rows,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert torch.equal(program.module()(torch.ones(2, 3)), inner(torch.ones(2, 3)))
