"""The JSON Schema of configurations accepts and refuses what `load` does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.contracts.registry import NAMES
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.json_schema import configuration_schema
from tests.common.config.test_config import tree

ROOT = Path(__file__).parents[3]


@cache
def validator() -> Any:
    schema = configuration_schema()
    _validator().check_schema(schema)
    return _validator()(schema)


def _validator() -> Any:
    from jsonschema import Draft202012Validator  # at first use: every worker would import it for three seconds

    return Draft202012Validator


def fits(content: Any) -> bool:
    return validator().is_valid(content)


def loads(content: Any) -> bool:
    try:
        parse(content)
    except ConfigError:
        return False
    return True


@cache
def files() -> dict[str, dict[str, Any]]:
    """Every configuration of the tree, by its path."""
    found = {}
    for path in sorted([*ROOT.glob("experiments/**/*.yaml"), *ROOT.glob("deploy/**/*.y*ml")]):
        content = next(yaml.load_all(path.read_text(), yaml.CSafeLoader))
        if isinstance(content, dict) and "federation" in content:
            found[path.relative_to(ROOT).as_posix()] = content
    return found


def test_every_configuration_of_the_tree_fits() -> None:
    assert len(files()) > 80
    assert not [path for path, content in files().items() if not fits(content)]


FORMS: list[dict[str, Any]] = [
    *({"federation__parties": parties} for parties in (4, ["a", "b"], {"a": "", "b": None})),
    *({"federation__protocol": protocol} for protocol in ("split", {"name": "split", "embedding": 8}, "vimadmm")),
    {"federation__protocol": {"name": "vimadmm", "head": "mlp"}},
    {"federation__protocol": {"name": "c_vfl", "head": {"name": "mlp", "hidden": 9}}},
    *(
        {"federation__quorum": quorum}
        for quorum in ("wait", {"deadline": 1.5}, {"fastest": 1}, {"threshold": 2}, {"need": 1, "grace": 2})
    ),
    {"federation__compress": {"up": 8, "down": {"top": 0.1}, "evaluate": {"bits": 4, "scale": "column"}}},
    {"federation__compress": {"up": {"sign": True}, "evaluate": None}},
    {"federation__privacy": {"epsilon": 8, "clip": 1}},
    {"federation__privacy": {"mechanism": "adaptive", "delta": 1e-5, "clip": 1, "noise_multiplier": 2}},
    *({"federation__rows": {"test": test, "validation": 3}} for test in (10, 0.2, "official", None)),
    {"federation__stop": {"patience": 3}},
    {"every_party__model": "resnet18"},
    {"every_party__model": "./towers.py:Tower"},
    {"every_party__model": {"file": "./towers.py:Tower", "depth": 3}},
    {"every_party__optimiser": "adam"},
    {"every_party__optimiser": {"lr": 0.1}},
    {"every_party__optimiser": {"betas": [0.9, 0.99], "eps": 1e-7}, "server__optimiser": {"weight_decay": 0}},
    {"every_party__optimiser": {"name": "adam", "betas": [0.9, 0.99]}},
    {"every_party__metrics": 9100},
    {"every_party__metrics": "0.0.0.0:9100"},
    {"every_party__data": {"source": "csv", "path": "x.csv", "id": "k", "delimiter": "tab"}},
    {"every_party__data": {"key": "k"}, "parties": {p: {"data": {"source": "csv", "path": p}} for p in ("ada", "bob")}},
    {"parties": {"ada": {"data": {"split": {"kind": "columns", "take": ["a"]}}}, "bob": None}},
    {"every_party__model": {"name": "mlp"}, "parties": {"ada": {"model": {"hidden": 9}}}},
    {"every_party__chaos": {"delay": "exp(0.5s)", "jitter": "uniform(0s, 20ms)", "pause": "10s@20"}},
    {"every_party__chaos": {"delay": 0.5, "partition": ["5s-9s"]}},
    {"every_party__chaos": {"delay": {"H": "fedvs(2)"}, "drop": {"H": 0.5}, "bandwidth": "300Mbit/s", "crash": 3}},
    {"every_party__data__scale": {"mean": 0.1, "std": 0.3}},
    {"server__head": "mlp", "server__optimiser": {"lr": 1}, "server__class_weights": "balanced"},
    *(
        {"federation__classes": 2, "server__decide": decide, "server__calibrate": "platt"}
        for decide in (
            "f1", 0.3, {"at": 0.3}, {"by": "youden"}, {"by": "cost", "false_positive": 1, "false_negative": 8},
        )
    ),
    {"launch": {"restarts": 1}},
]  # fmt: skip


@pytest.mark.parametrize("values", FORMS, ids=str)
def test_short_forms_and_kinds_fit(values: dict[str, Any]) -> None:
    content = tree(**values)
    found = [error.message for error in validator().iter_errors(content)]
    assert not found
    refused = "" if loads(content) else "unfit"
    assert not refused or "H" in str(values), values  # a kind of messages that vimadmm does not have


WRONG: list[dict[str, Any]] = [
    {"fedration": {}},
    {"federation__batch": 0},
    {"federation__batch": 1.5},
    {"federation__batch": None},
    {"federation__parties": 0},
    {"federation__parties": []},
    {"federation__parties": ["a", "a"]},
    {"federation__parties": [1]},
    {"federation__participation": 1.01},
    {"federation__protocol": "splitt"},
    {"federation__protocol": {"embedding": 3}},
    {"federation__protocol": {"name": "split", "rho": 1}},
    {"federation__protocol": {"name": "vimadmm", "rho": 0}},
    {"federation__protocol": {"name": "vimadmm", "head": {"name": "linear", "bias": True}}},
    {"federation__quorum": "now"},
    {"federation__quorum": {"deadline": 1, "fastest": 2}},
    {"federation__compress": {"up": 9}},
    {"federation__compress": {"up": {"top": 1}}},
    {"federation__compress": {"up": {"sign": False}}},
    {"federation__privacy": {"epsilon": 8}},
    {"federation__privacy": {"mechanism": "laplace", "clip": 1}},
    {"federation__privacy": {"epsilon": 8, "clip": 1, "rescale": "none"}},
    {"federation__rows": {"validation": 1.5}},
    {"federation__align": "yes"},
    {"server__labels": {"source": "sklearn", "name": "digit"}},
    {"server__labels": {"name": "digits"}},
    {"server__listen": "127.0.0.1"},
    {"server__head": {"hidden": 4}},
    *(
        {"federation__classes": 2, "server__decide": decide}
        for decide in (
            "cost",
            "f2",
            1.5,
            True,
            {},
            {"by": "f1", "at": 0.3},
            {"by": "cost", "false_positive": 1},
            {"by": "f1", "false_positive": 1},
            {"at": 0.3, "false_negative": 1},
        )
    ),
    {"server__head": "mpl"},
    {"every_party__model": {"name": "mlp", "channels": [1, 2]}},
    {"every_party__model": {"file": "./towers.txt:Tower"}},
    {"every_party__optimiser": {"name": "adam", "momentum": 0.9}},
    {"every_party__optimiser": {"lr": 0}},
    {"every_party__data": {"source": "sklearn", "name": "digits", "path": "x"}},
    {"every_party__data": {"source": "csv", "path": "x", "delimiter": "ab"}},
    {"every_party__data__split": {"kind": "halves", "side": "middle"}},
    {"every_party__device": "gpu"},
    {"every_party__metrics": 70000},
    {"every_party__chaos": {"delay": "soon"}},
    {"every_party__chaos": {"drop": 1}},
    {"every_party__data": None, "parties": {"ada": {"modle": "mlp"}}},
    {"parties": {"ada": {"model": {"depth": 9}}}},
    {"every_party": None, "parties": {"ada": {}, "bob": {}}},  # nothing shared: every section must be whole
    {"launch": {"restarts": -1}},
]


@pytest.mark.parametrize("values", WRONG, ids=str)
def test_wrong_keys_types_and_ranges_are_refused_as_by_load(values: dict[str, Any]) -> None:
    content = tree(**values)
    assert not loads(content)
    assert not fits(content)


FREE = {"parties", "types", "units", "delay", "drop"}  # mappings whose keys are names of the user's, or of messages


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    for key, below in value.items() if isinstance(value, dict) else ():
        yield from nodes(below, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    content = copy.deepcopy(content)
    node = content
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return content


@pytest.mark.parametrize("protocol", NAMES)
def test_a_key_added_or_a_value_exchanged_anywhere_is_refused_by_both(protocol: str) -> None:
    """Anywhere in the file of one protocol; what all files share is not tried again for the others."""

    def name(content: dict[str, Any]) -> str:
        found = content["federation"]["protocol"]
        return found if isinstance(found, str) else found["name"]

    content = next(
        (content for content in files().values() if name(content) == protocol),
        {**tree(federation__protocol=protocol), "launch": {"restarts": 1}},
    )
    assert fits(content)
    count = 0
    for path, value in nodes(content):
        if protocol != "split" and path[:2] != ("federation", "protocol"):
            continue
        wrong = [changed(content, path, [{"no": []}])] if path else []
        if isinstance(value, dict) and not FREE & set(path[-1:]) and "file" not in value:
            wrong.append(changed(content, (*path, "unheard_of"), 1))
        for each in wrong:
            count += 1
            assert not fits(each) and not loads(each), (path, each)
    assert count > (20 if protocol == "split" else 0)


def test_a_protocol_of_another_package_is_in_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    from typing import Literal

    from pydantic import Field

    from colonnade.common.config.protocol import ProtocolConfig
    from colonnade.common.contracts.registry import CONTRACTS, ByName

    class Inner(ProtocolConfig):
        name: Literal["inner"] = "inner"

    class SgdConfig(ProtocolConfig):  # the name of one of ours
        name: Literal["outside"] = "outside"
        gain: float = Field(gt=0)
        below: Inner = Inner()

    class Outside:
        config = SgdConfig

    names, get = [*NAMES, "outside"], ByName.__getitem__
    monkeypatch.setattr(ByName, "__iter__", lambda self: iter(names))
    monkeypatch.setattr(
        ByName, "__getitem__", lambda self, name: Outside if (self, name) == (CONTRACTS, "outside") else get(self, name)
    )
    schema = _validator()(configuration_schema())
    for gain, right in ((1, True), (0, False), ("x", False)):
        assert schema.is_valid(tree(federation__protocol={"name": "outside", "gain": gain})) is right
    assert not schema.is_valid(tree(federation__protocol={"name": "outside"}))
    assert schema.is_valid(tree(every_party__optimiser={"lr": 0.1}))
