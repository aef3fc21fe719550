"""Settings that a file leaves out are the protocol's; what it names is never changed."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.common.config.members import unused
from colonnade.common.config.optimisers import AdamConfig, AdamWConfig, SgdConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.testing.trial import digits
from tests.support.federation import AGREED


def made(name: str, *, party: Any = None, server: Any = None, **agreed: Any) -> Any:
    tree = digits({"name": name}, **{**AGREED.get(name, {}), **agreed})
    if party is not None:
        tree["every_party"] |= party
    if server is not None:
        tree["server"] |= server
    return parse(tree)


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_fills_in_its_own(name: str) -> None:
    config, defaults = made(name), CONTRACTS[name].config.defaults
    party = config.parties["party1"]
    assert (party.optimiser, party.head_optimiser) == (defaults.optimiser, defaults.own_head)
    assert config.server.optimiser == defaults.head
    assert (party.model.name, config.server.head.name) == (defaults.model["name"], defaults.joint["name"])
    if config.server.active is not None:
        assert config.server.active.optimiser == defaults.optimiser
    assert not [*unused(config.federation, config.server), *unused(config.federation, party)]


@pytest.mark.parametrize(
    ("name", "of_party", "of_server"),
    [
        ("split", ["head", "head_optimiser"], []),
        ("fdml", ["head"], ["head", "optimiser"]),
        ("vfedmh", [], []),
        ("vimadmm", ["head", "head_optimiser"], ["head"]),
        ("local", ["model", "optimiser", "head", "head_optimiser"], []),
        ("hetero_lr", ["model", "optimiser", "head", "head_optimiser"], ["head", "optimiser"]),
    ],
)
def test_what_a_protocol_does_not_use_is_named(name: str, of_party: list[str], of_server: list[str]) -> None:
    mlp, sgd = {"name": "mlp", "hidden": 7}, {"name": "sgd", "lr": 0.7}
    party = {"model": mlp, "optimiser": sgd, "head": mlp, "head_optimiser": sgd}
    config = made(name, party=party, server={"head": mlp, "optimiser": sgd})
    for member, keys in ((config.parties["party1"], of_party), (config.server, of_server)):
        said = [*unused(config.federation, member)]
        assert [each.split("`")[1] for each in said] == keys and all(f" {name} " in each for each in said)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"codes", "scorecard"}))  # they predict classes
def test_rates_for_numbers_are_lower(name: str) -> None:
    classes, numbers = made(name), made(name, task="regression", classes=0)
    for kind in ("optimiser", "head_optimiser"):
        one, other = (getattr(config.parties["party1"], kind).lr for config in (classes, numbers))
        assert other == pytest.approx((1 if name == "czofo" else 0.3) * one)


def test_keys_without_a_name_change_the_protocols_own_optimiser() -> None:
    party = made("split", party={"optimiser": {"lr": 0.5}}).parties["party1"]
    assert party.optimiser == AdamWConfig(lr=0.5, weight_decay=0.1)
    with pytest.raises(ConfigError, match=r"every_party\.optimiser\.momentum: unknown key") as refused:
        made("split", party={"optimiser": {"momentum": 0.5}})
    assert "key of `name: rmsprop, sgd`; allowed with `name: adamw`: betas, " in str(refused.value.hint)


@pytest.mark.parametrize("given", ["sgd", {"name": "sgd"}])
def test_a_named_optimiser_has_its_own_defaults(given: Any) -> None:
    config = made("split", party={"optimiser": given, "head_optimiser": given}, server={"optimiser": given})
    party = config.parties["party1"]
    assert party.optimiser == SgdConfig() and party.head_optimiser == config.server.optimiser == SgdConfig(momentum=0)


@pytest.mark.parametrize("given", ["polynomial", {"name": "polynomial"}])
def test_a_model_of_the_protocols_kind_keeps_what_it_does_not_change(given: Any) -> None:
    config = made("fedvs", party={"model": given}, server={"head": {"name": "mlp", "hidden": 9}})
    assert config.parties["party1"].model.clip == 3
    assert (config.server.head.hidden, config.server.head.dropout) == (9, 0)
    config = made("split_avg", party={"model": given}, server={"head": "normed"})
    assert config.parties["party1"].model.clip == 0 and config.server.head.name == "normed"


def test_one_party_may_differ() -> None:
    tree = digits({"name": "split"}, parties=["bank", "shop"])
    tree["parties"] = {"shop": {"optimiser": "adam", "model": {"name": "mlp", "hidden": 3}}}
    config = parse(tree)
    assert config.parties["shop"].optimiser == AdamConfig() and config.parties["bank"].optimiser.name == "adamw"


def test_a_constant_may_depend_on_the_task_and_what_a_file_says_counts() -> None:
    assert made("vimadmm").federation.protocol.rho == 1
    assert made("vimadmm", task="regression", classes=0).federation.protocol.rho == 5
    assert made("linear_admm", task="regression", classes=0).federation.protocol.rho == 0.5
    tree = digits({"name": "vimadmm", "rho": 1}, task="regression", classes=0)
    assert parse(tree).federation.protocol.rho == 1  # type: ignore[attr-defined]


def test_steps_that_a_config_computes_are_accounted_for() -> None:
    """A plug-in may name its steps by a property, which is no key of the section."""

    class Computed(ProtocolConfig):
        name: str = "computed"
        twice: int = 3

        @property
        def local_steps(self) -> int:
            return 2 * self.twice

    assert Computed().local_steps_taken == 6 and Computed().steps_key == ""
