"""The space of a search: refusals by name before any trial, usual spaces, and values as `--set` takes them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from colonnade.common.config.members import SearchedKey
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import ConfigError, ContractError, TrainingDiverged
from colonnade.common.parsing.file import parse
from colonnade.search.space import Searched, applied, check_space, default_space, own_values, read_space, setting
from colonnade.simulation.federation import Simulation
from tests.support.federation import tree

VIMADMM: dict[str, Any] = tree({"name": "vimadmm", "embedding": 8}, batch=256)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "expected low and high, or choices"),
        ({"low": 1}, "expected low and high, or choices"),
        ({"low": 3, "high": 1}, "low = 3 is above high = 1"),
        ({"low": 2, "high": 2}, "low and high are both 2: the range is empty"),
        ({"low": 0, "high": 1, "log": True}, "low = 0 with log: expected more than 0"),
        ({"low": -1, "high": 1, "log": True}, "low = -1 with log: expected more than 0"),
        ({"low": 0.5, "high": 2, "integer": True}, "expected whole numbers"),
        ({"choices": [1]}, "expected at least 2 choices"),
        ({"choices": [1, 1]}, "a choice is given twice"),
        ({"choices": [1, 2], "low": 1}, "choices stand alone"),
    ],
)
def test_a_wrong_range_is_refused_by_its_key(values: dict[str, Any], said: str) -> None:
    """In the file's section, and from Python."""
    key = "federation.protocol.rho"
    with pytest.raises(ConfigError) as in_file:
        parse({**VIMADMM, "search": {key: values}})
    with pytest.raises(ConfigError) as from_python:
        read_space({key: values})
    for refused in (in_file, from_python):
        assert f"search.{key}" in str(refused.value) and said in str(refused.value)


def test_an_unknown_word_of_a_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"search\.federation\.batch.*chioces"):
        parse({**VIMADMM, "search": {"federation.batch": {"chioces": [1, 2]}}})


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("federation.protocol.rha", {"low": 0.1, "high": 1}, "did you mean 'rho'"),
        ("every_party.optimizer.lr", {"low": 0.1, "high": 1}, "did you mean 'optimiser'"),
        ("federation.protocol.rho", {"low": 0, "high": 1}, "expected more than 0"),
        ("federation.batch", {"low": 32, "high": 64}, "32 and 64 are allowed, and 44.22 between them is not"),
        ("federation.protocol.missing", {"choices": ["zero", "lost"]}, "expected 'zero', 'last' or 'skip'"),
        ("federation.rows.validation", {"low": 0.1, "high": 0.5}, "trials with other rows"),
        ("federation.seed", {"choices": [1, 2]}, "trials with other rows"),
        ("server.labels.name", {"choices": ["digits", "wine"]}, "trials with other rows"),
    ],
)
def test_a_key_that_cannot_be_searched_is_refused(key: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_space(VIMADMM, read_space({key: values}))
    assert key in str(refused.value) and said in str(refused.value)


def test_a_template_that_every_party_overrides_has_no_effect() -> None:
    own = {name: {"optimiser": {"lr": 0.2}} for name in parse(VIMADMM).federation.names}
    made = {**copy.deepcopy(VIMADMM), "parties": own}
    with pytest.raises(ConfigError, match="the key has no effect"):
        check_space(made, read_space({"every_party.optimiser.lr": {"low": 0.1, "high": 1}}))


def test_a_section_written_as_a_name_takes_keys() -> None:
    made = copy.deepcopy(VIMADMM)
    made["federation"]["protocol"], made["every_party"]["optimiser"] = "vimadmm", "adam"
    config = parse(applied(made, ["federation.protocol.rho=3", "every_party.optimiser.lr=0.5"]))
    assert config.federation.protocol.rho == 3  # type: ignore[attr-defined]
    assert {(party.optimiser.name, party.optimiser.lr) for party in config.parties.values()} == {("adam", 0.5)}


@pytest.mark.parametrize("value", [1e-05, 0.1235, 7, True, None, "relu", "no", "1e-3", [1, 2], {"name": "mlp"}])
def test_a_setting_reads_as_the_value(value: Any) -> None:
    assert applied({}, [setting("a.b", value)]) == {"a": {"b": value}}


def test_values_have_four_digits_and_stay_in_the_range() -> None:
    one = Searched("x", SearchedKey(low=0.123456, high=2.34567, log=True))
    assert one.value(0.98765432) == 0.9877
    assert one.value(2.34567) == 2.34567
    assert Searched("x", SearchedKey(low=0.123449, high=1)).value(0.123449) == 0.123449
    whole = Searched("x", SearchedKey(low=10000, high=99999, integer=True))
    assert whole.value(12345) == 12345


def test_the_files_own_values_are_the_first_trial() -> None:
    space = check_space(VIMADMM, default_space(VIMADMM))
    found = own_values(VIMADMM, space)
    assert found["every_party.optimiser.lr"] == 0.1 and found["federation.batch"] == 256
    narrow = check_space(VIMADMM, read_space({"every_party.optimiser.lr": {"low": 0.2, "high": 1}}))
    assert own_values(VIMADMM, narrow) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_every_key_of_a_usual_space_changes_what_is_learned(name: str) -> None:
    """A run with another value of it: a key that its protocol ignores would learn the same."""
    short = {"gradients": "clear"} if name in ("secureboost", "additive") else {}
    rows = {"train": 128, "validation": 50, "test": 50}
    made = tree({"name": name, **short}, parties=3, epochs=0, rounds=2, batch=64, rows=rows)
    space, plain = check_space(made, default_space(made)), _loss(made)
    assert space
    present = own_values(made, space)
    for one in space:
        other = next(value for value in (one.probes()[0], one.probes()[-1]) if value != present.get(one.key))
        assert _loss(applied(made, [setting(one.key, other)])) != plain, one.key


def _loss(made: dict[str, Any]) -> float:
    try:
        return Simulation(parse(made)).run().server.metrics["val_loss"]
    except (ContractError, TrainingDiverged) as diverged:  # also an effect
        return hash(str(diverged))
