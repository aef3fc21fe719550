"""A configuration that is written and read again is the same: for members' files, resumed runs and attacks."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.members import Config
from colonnade.common.config.optimisers import AdagradConfig, AdamConfig, SgdConfig
from colonnade.common.config.protocol import Defaults
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.errors import ConfigError
from colonnade.common.parsing import file
from colonnade.common.parsing.dump import config_files, config_tree, member_text, yaml_text
from colonnade.common.parsing.earlier_defaults import with_defaults_before
from colonnade.common.parsing.file import load, parse
from colonnade.common.parsing.yaml_tree import parse_yaml
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.configuration import GivenConfig
from colonnade_lab.comparison.plan import jobs as compared
from colonnade_lab.comparison.plan import read_plan
from colonnade_lab.papers.papers import chosen
from colonnade_lab.papers.results import jobs
from tests.support.federation import tree

ROOT = Path(__file__).parents[3]
# A hundred members' files take three seconds, and are as those of four.
FILES = sorted(
    path for path in (ROOT / "experiments").rglob("*.yaml")
    if "protocol:" in path.read_text() and path.stem != "parties100"
)  # fmt: skip
PRIVACY: dict[str, Any] = {
    "gaussian": {"clip": 1, "noise_multiplier": 2, "delta": 1e-5},
    "budget": {"clip": 1, "epsilon": 8, "delta": 1e-5},
    "adaptive": {"mechanism": "adaptive", "clip": 1, "release_epsilon": 1, "delta": 1e-5, "steps": {"clip": 1}},
    "cost": {"mechanism": "adaptive", "clip": 1, "noise_multiplier": 2, "delta": 1e-5, "steps": {"clip": 1, "cost": 2}},
    "rate": {
        "mechanism": "adaptive", "clip": 1, "noise_multiplier": 2, "delta": 1e-5,
        "steps": {"clip": 1, "rate": 0.05, "noise_multiplier": 4},
    },
}  # fmt: skip


def check(config: Config) -> None:
    """Reads everything that is written of a configuration, as members and later commands do.

    Of parties with equal sections one file is read.
    """
    made, sections = config_tree(config), list(config.parties.values())
    alike = {name for place, name in enumerate(config.parties) if sections.index(config.parties[name]) < place}
    for place, text in config_files(made, RunFolder(Path("run"))).items():
        if place.parent.name in alike:
            continue
        again = parse(parse_yaml(text))
        assert again.federation == config.federation
        assert again.federation.hashes() == config.federation.hashes()
        assert again.server in (None, config.server)
        assert all(config.parties[name] == party for name, party in again.parties.items())
    whole = parse(parse_yaml(yaml_text(made)))
    assert whole == config and config_tree(whole) == made
    assert parse(with_defaults_before(made)) == config  # a resumed run's
    name = config.federation.names[0]
    if name in config.parties:
        assert parse(parse_yaml(member_text(made, name))).parties == {name: config.parties[name]}


def test_every_experiment() -> None:
    """Of those with the same keys one is written."""
    seen: set[frozenset[str]] = set()
    for path in FILES:
        config, keys = load(path), frozenset(keys_of(parse_yaml(path.read_text())))
        if keys not in seen:
            check(config)
        seen.add(keys)
    assert len(seen) > 20


def keys_of(tree: Any, above: str = "") -> Iterator[str]:
    """Every key of a tree with those above it, and the names of what is chosen by name."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield f"{above}.{key}" + f"={value}" * (key in ("name", "kind", "mechanism", "source"))
        yield from keys_of(value, f"{above}.{key}")


@pytest.mark.parametrize("protocol", NAMES)
def test_every_protocol(protocol: str) -> None:
    check(parse(tree({"name": protocol})))


@pytest.mark.parametrize("privacy", PRIVACY)
def test_every_mechanism(privacy: str) -> None:
    check(parse(tree({"name": "vimadmm"}, privacy=copy.deepcopy(PRIVACY[privacy]))))


def test_null_that_replaces_a_default() -> None:
    made = tree({"name": "split"})
    made["server"]["alignments"] = {"per_day": None, "rows_per_day": None}
    made["every_party"]["model"] = {"file": "./tower.py:Tower", "depth": None, "how": {"a": None}}
    config = parse(made)
    check(config)
    server = config_tree(config)["server"]
    assert server["alignments"]["per_day"] is None and "identity" not in server


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("inf"), "how = inf is float"), ([1, float("nan")], r"how\[1\] = nan is float"),
        (datetime.date(2024, 1, 1), r"how = 2024-01-01 is date \(put it in quotes\)"),
        ({"a": {1: 2}}, r"how.a has the key 1, which is no text \(put it in quotes\)"),
        (b"x", "is bytes"), ((1, 2), "is tuple"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("section", ["every_party", "server"])
def test_an_argument_of_own_code_that_would_change_on_the_way_is_refused(value: Any, said: str, section: str) -> None:
    """Infinity became null, and a date and a key 1 text, for members that `up` starts and for resumed runs."""
    made = tree({"name": "split"})
    made[section]["head" if section == "server" else "model"] = {"file": "./tower.py:Tower", "how": value}
    with pytest.raises(ConfigError, match=said):
        parse(made)


def test_a_run_of_before_with_a_cost_beside_the_rate_is_read() -> None:
    made = tree({"name": "vimadmm"}, privacy=copy.deepcopy(PRIVACY["rate"]))
    made["federation"]["privacy"]["accounting"] = "exact"
    made["federation"]["privacy"]["steps"]["cost"] = 0.1
    with pytest.raises(ConfigError, match="cost with rate"):
        parse(made)
    assert parse(with_defaults_before(made)).federation.privacy.steps.rate == 0.05  # type: ignore[union-attr]


def test_typed_sections_keep_their_kind() -> None:
    made = tree({"name": "split"})
    made["server"]["optimiser"], made["every_party"]["optimiser"] = AdamConfig(lr=0.3), SgdConfig(lr=0.5)
    config = GivenConfig.of(made).check()
    assert config.server is not None
    assert config.server.optimiser == AdamConfig(lr=0.3) and config.parties["party1"].optimiser == SgdConfig(lr=0.5)


# Any value that the schema allows, at any key.

schema = cache(Config.model_json_schema)


def resolved(node: Any) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        node = schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return node


TEXTS = st.sampled_from(["1e5", "yes", "null", "2024-01-01", "0x1F", "[bold]", "a\nb", "é", "a: b", " x", "1:20"])


def values(node: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that a part of the schema allows, more or less: those that it does not are refused by the parser."""
    node = resolved(node)
    if not isinstance(node, dict) or depth > 6:
        return st.none()
    if "const" in node:
        return st.just(node["const"])
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if ways := node.get("anyOf") or node.get("oneOf"):
        return st.one_of([values(way, depth + 1) for way in ways])
    match node.get("type"):
        case "integer":
            low = node.get("minimum", node.get("exclusiveMinimum", 0))
            return st.integers(int(low), int(min(node.get("maximum", low + 50), low + 50)))
        case "number":
            low, high = (float(node.get(key, edge)) for key, edge in (("minimum", 0), ("maximum", 3)))
            return st.one_of(st.floats(low, max(low, high)), st.sampled_from([1e-5, 1e-20, 0.1, 1.0, 1]))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "string":
            return st.one_of(st.sampled_from(node.get("examples", ["x"])), TEXTS)
        case "array":
            return st.lists(values(node.get("items"), depth + 1), max_size=3)
        case "object":
            keys = {key: values(below, depth + 1) for key, below in node.get("properties", {}).items()}
            needed = {key: keys.pop(key) for key in node.get("required", ()) if key in keys}
            return st.fixed_dictionaries(needed, optional=keys)
    return st.none()


def places(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of the federation's, the server's and all parties' sections, one level of kinds deep."""
    for key, below in resolved(node).get("properties", {}).items():
        yield (*path, key), below
        if len(path) < 3:
            for way in [below, *resolved(below).get("anyOf", ()), *resolved(below).get("oneOf", ())]:
                yield from places(way, (*path, key)) if isinstance(resolved(way), dict) else ()


@cache
def places_of(protocol: str) -> list[tuple[tuple[str, ...], Any]]:
    own = CONTRACTS[protocol].config.model_json_schema()["properties"].items()
    return [
        (("every_party" if top == "party" else top, *path), below)
        for top, section in (("federation", "FederationConfig"), ("server", "ServerConfig"), ("party", "PartyConfig"))
        for path, below in places(schema()["$defs"][section])
    ] + [(("federation", "protocol", key), below) for key, below in own if key != "name"]


@given(st.data(), st.sampled_from(NAMES))
def test_whatever_is_set(data: st.DataObject, protocol: str) -> None:
    """Of the changes that are drawn, those that the configuration allows are kept."""
    made, config = tree({"name": protocol}), None
    for (*folders, leaf), below in data.draw(st.lists(st.sampled_from(places_of(protocol)), min_size=1, max_size=12)):
        changed = copy.deepcopy(made)
        node = changed
        for folder in folders:
            if not isinstance(node.get(folder), dict):
                node[folder] = {}
            node = node[folder]
        node[leaf] = data.draw(values(below))
        try:
            config, made = parse(changed), changed
        except ConfigError:
            continue
    if config is not None:
        check(config)


ODD = AdagradConfig(lr=0.0123)
HEADLESS = ("vimadmm_j", "fdml", "linear_admm")  # whose server has no head that steps
WITHOUT_STEPS = ("linear_admm", "centralized", "local")  # whose parties do not step
OWN_HEADS = ("vimadmm_j", "fdml", "vfedmh", "agg_vfl")
WITH_MLP_HEADS = [name for name in NAMES if CONTRACTS[name].config.defaults.joint["name"] != "linear"]
CONSTANTS = {
    "vimadmm": {"rho", "tau"}, "vimadmm_j": {"rho", "tau", "damping"}, "linear_admm": {"rho", "damping"},
    "fedvs": {"data_bits", "weight_bits"},
}  # fmt: skip


def runs() -> Iterator[tuple[Path, tuple[str, ...]]]:
    papers = [pair for quick in (False, True) for pair in chosen("", quick=quick)]
    plan = read_plan()
    for job in (*jobs(papers, 1), *compared(plan, tuple(plan.protocols), 1)):
        yield job.run.path, job.sets


def used(config: dict[str, Any], name: str) -> Iterator[Any]:
    """The optimisers that a run steps with, and the server's head."""
    server, parties = config["server"], config["parties"].values()
    yield from (party["optimiser"] for party in parties if name not in WITHOUT_STEPS)
    yield from (party["head_optimiser"] for party in parties if name in OWN_HEADS)
    if name not in HEADLESS:
        yield server["optimiser"]
    if server.get("active"):
        yield server["active"]["optimiser"]
    if name in WITH_MLP_HEADS:
        yield server["head"]


def test_no_run_of_the_papers_depends_on_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Defaults(ODD, ODD, ODD, joint={"name": "mlp", "hidden": 77})
    monkeypatch.setattr(file, "for_task", lambda _defaults, _task: odd)
    seen = 0
    for path, sets in runs():
        config = load(path, sets)
        protocol = config.federation.protocol
        kept = json.loads(config.model_dump_json())
        found = [section for section in used(kept, protocol.name) if section.get("lr") == ODD.lr]
        found += [section for section in used(kept, protocol.name) if section.get("hidden") == 77]
        assert not found, (path, sets)
        assert CONSTANTS.get(protocol.name, set()) <= protocol.model_fields_set, (path, sets)
        seen += 1
    assert seen > 200
