"""Every protocol has a page and is in every list; what docs/protocol_parts.md lists is there; the example runs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from colonnade.cli.checks.check import check
from colonnade.cli.new.commands import fill
from colonnade.client.privacy.egress import Egress
from colonnade.client.training import evaluation as at_party
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Cohort, Link
from colonnade.common.errors import ConfigError
from colonnade.common.models.backprop import Backprop
from colonnade.common.models.optimiser import stepper
from colonnade.common.parsing.dump import yaml_text
from colonnade.server.training import evaluation as at_server
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import JointHead, LogitSum
from colonnade.server.training.imputation import StandIn
from colonnade.testing import Expected, Trial, conformance, digits
from tests.outside.conftest import install  # noqa: F401  # a fixture
from tests.support.outside import Install

DOCS = Path(__file__).parents[2] / "docs"
BOTH = {"stepper": stepper, "StandIn": StandIn, "JointHead": JointHead, "LogitSum": LogitSum, "Local": Local}
SERVER = {**BOTH, "ctx": ServerContext, "clients": Cohort, "evaluate": at_server.evaluate}
PARTY = {**BOTH, "ctx": ClientContext, "server": Link, "evaluate": at_party.evaluate, "Backprop": Backprop}
SIDES: dict[str, list[dict[str, Any]]] = {"Both sides": [SERVER, PARTY], "Server": [SERVER], "Party": [PARTY]}


def member(owner: Any, name: str) -> Any:
    """What an attribute is: a function, or the class of a value."""
    if (owner, name) == (ClientContext, "release"):
        return Egress.release  # the field is any callable
    if (hint := get_type_hints(owner).get(name)) is not None:
        return hint
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, property | cached_property):
        return get_type_hints(found.fget if isinstance(found, property) else found.func)["return"]
    if found is None and f"self.{name}" not in inspect.getsource(owner.__init__):
        raise KeyError(name)
    return found


def listed() -> Iterator[tuple[str, str]]:
    """Every table's head and code of its rows."""
    section = (DOCS / "protocol_parts.md").read_text().partition("## What a protocol calls\n")[2].partition("\n## ")[0]
    for table in section.split("\n\n| ")[1:]:
        head, *rows = table.splitlines()
        for row in rows[1:]:
            yield from ((head.partition(" |")[0], code) for code in re.findall(r"`([A-Za-z_.]+(?:\(.*?\))?)`", row))


def objection(side: dict[str, Any], code: str) -> str:
    """What is wrong with a call or an attribute; "" for nothing."""
    tree = ast.parse(code, mode="eval").body
    function = tree.func if isinstance(tree, ast.Call) else tree
    steps = ast.unparse(function).split(".")
    if steps[0] not in side:
        return "" if len(steps) == 1 else "of nothing that is known"
    found = side[steps[0]]
    for step in steps[1:]:
        try:
            found = member(found, step)
        except KeyError:
            return f"there is no {step}"
    if not isinstance(tree, ast.Call) or str(found).startswith("collections.abc.Callable"):
        return ""
    method = inspect.isclass(found) or len(steps) > 1
    wanted = list(inspect.signature(found.__init__ if inspect.isclass(found) else found).parameters.values())[method:]
    given = [ast.unparse(each) for each in tree.args] + [each.arg or "dims" for each in tree.keywords]
    names = [each.name for each in wanted]
    rest = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = {each.name for each in wanted if each.default is each.empty and each.kind not in rest}
    positional = given[: len(tree.args)]
    fits = positional == names[: len(positional)] and needed <= set(given) <= set(names)
    return "" if fits else f"it takes {', '.join(names)}"


def test_a_protocol_can_call_what_is_listed() -> None:
    rows = list(listed())
    assert len(rows) > 40 and {head for head, _ in rows} == set(SIDES)
    wrong = {code: said for head, code in rows for side in SIDES[head] if (said := objection(side, code))}
    assert not wrong
    named = re.findall(r"`(\w+/[\w/]+\.py)`", (DOCS / "protocol_parts.md").read_text())
    assert named and not [path for path in named if not (DOCS.parent / path).is_file()]


@pytest.mark.parametrize("code", ["ctx.targets(logits)", "ctx.loss.average(logits, targets)", "StandIn.fill(batch)"])
def test_another_signature_would_be_noticed(code: str) -> None:
    assert objection(SERVER, code)


def test_the_example_of_a_model_is_a_whole_joint_model(install: Install) -> None:  # noqa: F811
    """In the package that `colonnade new protocol` writes."""
    model = re.findall(r"^```python\n(.*?)^```", (DOCS / "adding_a_protocol.md").read_text(), re.M | re.S)[2]
    imports = """import torch
from torch import nn
from colonnade.common.errors import ConfigError
from colonnade.server.training.fusion.heads import joint_head
"""
    source = fill("protocol.txt", name="gated", title="Gated")
    head, future, rest = source.partition("from __future__ import annotations\n")
    made, call = "def joint(", "    return JointHead(ctx, cfg.embedding)"
    assert source.count(call) == source.count(made) == 1
    rest = rest.replace(call, "    return GatedHead(ctx, cfg.embedding)").replace(made, f"{model}\n\n{made}")
    install("gated", "colonnade_gated_signs", head + future + imports + rest)
    suite = conformance("gated", embedding=8)()
    suite.test_the_model_in_its_parts_scores_as_in_training()
    suite.test_heads_are_the_weights_of_linear_logits()


def test_the_example_without_a_head_runs_and_has_a_width(tmp_path: Path, install: Install) -> None:  # noqa: F811
    source = re.findall(r"^```python\n(.*?)^```", (DOCS / "adding_a_protocol.md").read_text(), re.M | re.S)[1]
    install("ensemble", "colonnade_ensemble_signs", source)
    file = tmp_path / "federation.yaml"
    file.write_text(yaml_text(digits({"name": "ensemble"})))
    check(file, ())
    with pytest.raises(ConfigError, match=r"party1\.model makes 7 numbers of a row, .* takes 10") as refused:
        check(file, ("every_party.model={name: mlp, embedding: 7}",))
    assert refused.value.hint == "write `embedding: 10` there"
    assert Trial("ensemble", Expected(epochs=1), {}).learned.server.metrics["test_accuracy"] > 0.2


ROOT = Path(__file__).parents[2]
LISTS = {
    "docs/protocols/index.md": r"^\| \[`(\w+)`\]\(\1\.md\) \|",
    "mkdocs.yml": r"^ +- (\w+): protocols/\1\.md$",
}


@pytest.mark.parametrize("place", LISTS)
def test_a_list_has_every_protocol_once(place: str) -> None:
    found = re.findall(LISTS[place], (ROOT / place).read_text(), re.M)
    assert sorted(found) == sorted(CONTRACTS)


def test_every_protocol_has_a_page_under_its_name() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "protocols").glob("*.md")} - {"index"}
    assert pages == set(CONTRACTS)
    for name in CONTRACTS:
        assert f"`{name}`" in (ROOT / "docs" / "protocols" / f"{name}.md").read_text().partition("\n")[0]
