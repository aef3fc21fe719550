"""Every wrong input gives one clear error: the key as the file has it, the value, what is allowed, the nearest word."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import yaml

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import differences, parse

PIN = "sha256:" + "a1" * 32
TREE: dict[str, Any] = {
    "federation": {
        "id": "test",
        "protocol": {"name": "vimadmm", "embedding": 60},
        "parties": ["ada", "bob"],
        "classes": 10,
        "epochs": 2,
        "batch": 64,
    },
    "server": {"labels": {"source": "sklearn", "name": "digits"}},
    "every_party": {"data": {"source": "sklearn", "name": "digits", "split": "columns"}, "model": {"name": "mlp"}},
}


def tree(**values: Any) -> dict[str, Any]:
    """The tree with other values; __ separates the steps of a key, and None takes it out."""
    changed = copy.deepcopy(TREE)
    for key, value in values.items():
        *above, last = key.split("__")
        node = changed
        for step in above:
            node = node.setdefault(step, {})
        if value is None:
            del node[last]
        else:
            node[last] = value
    return changed


def error(wrong: Any, *sets: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        parse(wrong, sets)
    return refused.value


def test_the_tree_of_these_tests_is_allowed() -> None:
    config = parse(TREE)
    assert config.federation.names == ("ada", "bob") == tuple(config.parties)


ONE_OF_TWO = "give one of the two, at least 1, and leave the other out"
WRONG: list[tuple[dict[str, Any], str]] = [
    # Unknown keys, at every level.
    ({"fedration": {}}, "fedration: unknown key (did you mean 'federation'?)"),
    ({"every_prty": {}}, "every_prty: unknown key (did you mean 'every_party'?)"),
    ({"federation__bach": 3}, "federation.bach: unknown key (did you mean 'batch'?)"),
    ({"federation__protocol__roh": 1}, "federation.protocol.roh: unknown key (did you mean 'rho'?)"),
    ({"federation__stop": {"patience:3": None}}, "federation.stop.patience:3: unknown key (did you mean 'patience'?)"),
    ({"federation__quorum__nede": 1}, "federation.quorum.nede: unknown key (did you mean 'need'?)"),
    ({"federation__rows__tset": 1}, "federation.rows.tset: unknown key (did you mean 'test'?)"),
    ({"server__treads": 1}, "server.treads: unknown key (did you mean 'threads'?)"),
    ({"server__labels__nam": 1}, "server.labels.nam: unknown key (did you mean 'name'?)"),
    ({"server__head": {"name": "linear", "biass": 1}}, "server.head.biass: unknown key (did you mean 'bias'?)"),
    ({"server__optimiser": {"name": "adam", "beta": 1}}, "server.optimiser.beta: unknown key (did you mean 'betas'?)"),
    ({"every_party__data__scael": 1}, "every_party.data.scael: unknown key (did you mean 'scale'?)"),
    ({"every_party__data__split": {"kind": "columns", "taek": 1}},
     "every_party.data.split.taek: unknown key (did you mean 'take'?)"),
    ({"every_party__model__hiden": 1}, "every_party.model.hiden: unknown key (did you mean 'hidden'?)"),
    ({"every_party__optimiser": {"lrr": 1}}, "every_party.optimiser.lrr: unknown key (did you mean 'lr'?)"),
    ({"parties": {"ada": {"model": {"hiden": 1}}}}, "parties.ada.model.hiden: unknown key (did you mean 'hidden'?)"),
    ({"parties": {"ada": {"modle": "mlp"}}}, "parties.ada.modle: unknown key (did you mean 'model'?)"),
    # Enumerated values.
    ({"federation__protocol": "vimadm"},
     "federation.protocol.name = 'vimadm': unknown protocol (did you mean 'vimadmm'?)"),
    ({"federation__protocol": {"name": ["split"]}},
     "federation.protocol.name = ['split']: unknown protocol (did you mean 'split'?)"),
    ({"federation__protocol__name": None}, "federation.protocol.name: missing"),
    ({"federation__protocol": 5},
     f"federation.protocol = 5: expected one of {', '.join(CONTRACTS)}, or keys and values"),
    ({"server__labels__source": "sklaern"},
     "server.labels.source = 'sklaern': expected sklearn, idx, cifar, adult, csv, parquet, arrow, sql, duckdb, npy, "
     "mat or safetensors (did you mean 'sklearn'?)"),
    ({"server__labels__source": None}, "server.labels.source: missing"),
    ({"server__labels": {"sorce": "csv", "path": "x"}}, "server.labels.sorce: unknown key (did you mean 'source'?)"),
    ({"server__labels": "digits"}, "server.labels = 'digits': expected keys and values"),
    ({"server__labels__name": "digit"},
     "server.labels.name = 'digit': expected 'digits', 'breast_cancer', 'wine', 'iris' or 'diabetes' "
     "(did you mean 'digits'?)"),
    ({"server__head": "liner"},
     "server.head = 'liner': expected linear, mlp, normed or ./FILE.py:NAME (did you mean 'linear'?)"),
    ({"server__head": {"bias": True}}, "server.head.name: missing"),
    ({"server__head": 3}, "server.head = 3: expected linear, mlp, normed or ./FILE.py:NAME"),
    ({"server__head": "./head"}, "server.head = './head': expected ./FILE.py:NAME"),
    ({"server__head": {"file": "head.py"}}, "server.head.file = 'head.py': expected ./FILE.py:NAME"),
    ({"server__optimiser": "sdg"},
     "server.optimiser = 'sdg': expected sgd, adam, adamw, adagrad, rmsprop or adadelta (did you mean 'sgd'?)"),
    ({"every_party__optimiser": {"name": "adadelt", "lr": 1}},
     "every_party.optimiser.name = 'adadelt': expected sgd, adam, adamw, adagrad, rmsprop or adadelta "
     "(did you mean 'adadelta'?)"),
    ({"every_party__model__name": "mpl"},
     "every_party.model.name = 'mpl': expected mlp, cnn, lenet, resnet18, resnet50, linear, "
     "polynomial, timm, transformers or ./FILE.py:NAME (did you mean 'mlp'?)"),
    ({"every_party__model": "restnet18"},
     "every_party.model = 'restnet18': expected mlp, cnn, lenet, resnet18, resnet50, linear, "
     "polynomial, timm, transformers or ./FILE.py:NAME (did you mean 'resnet18'?)"),
    ({"every_party__data__split": "colums"},
     "every_party.data.split = 'colums': expected all, columns, windows, image_rows, patches or halves "
     "(did you mean 'columns'?)"),
    ({"every_party__data__split": {"kind": "columns", "take": "evn"}},
     "every_party.data.split.take = 'evn': expected 'even', 'random' or a list (did you mean 'even'?)"),
    ({"every_party__data__scale": "unti"},
     "every_party.data.scale = 'unti': "
     "expected 'none', 'unit', 'standard', 'auto' or keys and values (did you mean 'unit'?)"),
    ({"every_party__data__scale": {"mean": 1}}, "every_party.data.scale.std: missing"),
    ({"every_party__data__scale": {"mean": 1, "std": 0}}, "every_party.data.scale.std = 0: expected more than 0"),
    # Values.
    ({"federation__protocol__rho": 0}, "federation.protocol.rho = 0: expected more than 0"),
    ({"federation__protocol__rho": -1.5}, "federation.protocol.rho = -1.5: expected more than 0"),
    ({"federation__protocol__rho": float("nan")}, "federation.protocol.rho = nan: expected a finite number"),
    ({"federation__protocol__rho": float("inf")}, "federation.protocol.rho = inf: expected a finite number"),
    ({"federation__protocol__rho": "one"}, "federation.protocol.rho = 'one': expected a number"),
    ({"federation__protocol__dual_step": 0}, "federation.protocol.dual_step = 0: expected more than 0"),
    ({"federation__protocol__dual_step": 2}, "federation.protocol.dual_step = 2: expected less than 2"),
    ({"federation__protocol__tau": 0}, "federation.protocol.tau = 0: expected at least 1"),
    ({"federation__batch": 0}, "federation.batch = 0: expected at least 1"),
    ({"federation__batch": 2.5}, "federation.batch = 2.5: expected a whole number"),
    ({"federation__batch": "many"}, "federation.batch = 'many': expected a whole number"),
    ({"federation__batch": [64]}, "federation.batch: expected a whole number"),
    ({"federation__batch": None}, "federation.batch: missing"),
    ({"federation__id": ""}, "federation.id = '': expected at least 1 character"),
    ({"federation__id": 3}, "federation.id = 3: expected text"),
    ({"federation__seed": -1}, "federation.seed = -1: expected at least 0"),
    ({"federation__shuffle": "maybe"},
     "federation.shuffle = 'maybe': expected true or false, 'full' or keys and values"),
    ({"federation__shuffle": {"blocks": 0}}, "federation.shuffle.blocks = 0: expected at least 1"),
    ({"federation__shuffle": {"block": 9}}, "federation.shuffle.block: unknown key (did you mean 'blocks'?)"),
    ({"federation__shuffle": {"blocks": 2**20, "group": 99}},
     "federation.shuffle: 99 blocks of 1048576 are 103809024 rows, and at most 16777216 can be mixed"),
    ({"federation__classes": 1}, "federation.classes = 1: expected at least 2"),
    ({"federation__classes": ["a"]}, "federation.classes = ['a']: expected at least 2"),
    ({"federation__classes": "ten"}, "federation.classes = 'ten': expected a whole number or a list"),
    ({"federation__classes": ["no", True]}, "federation.classes.1 = true: expected text"),
    ({"federation__rounds": 3}, f"federation.epochs = 2 and federation.rounds = 3: {ONE_OF_TWO}"),
    ({"federation__epochs": None}, f"federation.epochs = 0 and federation.rounds = 0: {ONE_OF_TWO}"),
    ({"federation__epochs": -1}, "federation.epochs = -1: expected at least 0"),
    ({"federation__quorum__need": 3},
     "federation.quorum.need = 3: expected 0 to 2, as many as there are parties, or all"),
    ({"federation__quorum__need": "al"},
     "federation.quorum.need = 'al': expected a whole number or 'all' (did you mean 'all'?)"),
    ({"federation__timeouts__answer": 0}, "federation.timeouts.answer = 0: expected more than 0"),
    ({"federation__rows__validation": 1.5}, "federation.rows.validation = 1.5: expected a whole number or less than 1"),
    ({"federation__rows__test": "oficial"},
     "federation.rows.test = 'oficial': expected a whole number, a number or 'official' (did you mean 'official'?)"),
    ({"federation__evaluate__every": 0}, "federation.evaluate.every = 0: expected at least 1"),
    ({"federation__server": "abc"}, "federation.server: 'abc' is not a fingerprint"),
    ({"server__listen": "9000"}, "server.listen = '9000': expected HOST:PORT, a port of 0 to 65535"),
    ({"server__listen": ":9000"}, "server.listen = ':9000': expected HOST:PORT, a port of 0 to 65535"),
    ({"server__listen": "0.0.0.0:99999"}, "server.listen = '0.0.0.0:99999': expected HOST:PORT, a port of 0 to 65535"),
    ({"server__listen": ""}, "server.listen = '': expected at least 1 character"),
    ({"server__device": "gpu"}, "server.device = 'gpu': expected auto, cpu, cuda or cuda:N"),
    ({"server__threads": -1}, "server.threads = -1: expected at least 0"),
    ({"server__identity": 5}, "server.identity = 5: expected a path"),
    ({"server__optimiser": {"name": "sgd", "lr": 0}}, "server.optimiser.lr = 0: expected more than 0"),
    ({"server__optimiser": {"name": "sgd", "momentum": 1}}, "server.optimiser.momentum = 1: expected less than 1"),
    ({"server__optimiser": {"name": "sgd", "nesterov": True}},
     "server.optimiser: `nesterov` needs a `momentum` above 0"),
    ({"server__optimiser": {"name": "adam", "betas": [0.9]}}, "server.optimiser.betas.1: missing"),
    ({"server__optimiser": {"name": "adam", "betas": [0.9, 1.2]}},
     "server.optimiser.betas.1 = 1.2: expected less than 1"),
    ({"every_party__connect": "localhost"},
     "every_party.connect = 'localhost': expected HOST:PORT, a port of 0 to 65535"),
    ({"every_party__model__hidden": 0}, "every_party.model.hidden = 0: expected more than 0"),
    ({"parties": {"bob": {"threads": "two"}}}, "parties.bob.threads = 'two': expected a whole number"),
    # The roster.
    ({"federation__parties": 0}, "federation.parties = 0: expected 1 to 10000"),
    ({"federation__parties": 10**9}, "federation.parties = 1000000000: expected 1 to 10000"),
    ({"federation__parties": []}, "federation.parties: there are none"),
    ({"federation__parties": True}, "federation.parties = true: expected a roster"),
    ({"federation__parties": "ada"}, "federation.parties = 'ada': expected a roster"),
    ({"federation__parties": ["ada", "ada"]}, "federation.parties: 'ada' is listed twice"),
    ({"federation__parties": ["Ada"]}, "federation.parties: 'Ada' is not a name for a party"),
    ({"federation__parties": ["server"]}, "federation.parties: 'server' is the server's name, no party's"),
    ({"federation__parties": ["ada", 2]}, "federation.parties.1 = 2: expected a name"),
    ({"federation__parties": [["ada"]]}, "federation.parties.0 = ['ada']: expected a name"),
    ({"federation__parties": {"ada": "ab:cd"}}, "federation.parties.ada: 'ab:cd' is not a fingerprint"),
    ({"federation__parties": {"ada": 5}}, "federation.parties.ada = 5: expected text"),
    ({"federation__parties": None}, "federation.parties: missing"),
    ({"parties": {"zoe": {}}}, "parties.zoe: not in the roster federation.parties"),
    ({"parties": {"boc": {}}}, "parties.boc: not in the roster federation.parties (did you mean 'bob'?)"),
    # Whole sections.
    ({"federation": None}, "federation: missing"),
    ({"federation": [1]}, "federation: expected keys and values"),
    ({"federation": "x"}, "federation = 'x': expected keys and values"),
    ({"server": "x"}, "server = 'x': expected keys and values"),
    ({"server": {}}, "server.labels: missing"),
    ({"parties": ["ada"]}, "parties: expected keys and values"),
    ({"parties": {"ada": 5}}, "parties.ada = 5: expected keys and values"),
    ({"every_party": 5}, "every_party = 5: expected keys and values"),
    ({"every_party": {}}, "parties.ada.data: missing"),
    ({"every_party__data": 5}, "every_party.data = 5: expected keys and values"),
]  # fmt: skip


JARGON = ("Input", "input", "valid ", "function", "tagged", "constrained", "literal[", "Literal", "pydantic", "pathlib",
          "Config", "union", "discriminator", "_kind", "[key]", "dict", "instance", "str]")  # fmt: skip


@pytest.mark.parametrize(("values", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_value_is_reported_in_one_line_without_words_of_the_validator(
    values: dict[str, Any], said: str
) -> None:
    wrong = error(tree(**values))
    assert str(wrong) == said and "\n" not in f"{wrong}{wrong.hint}"
    assert not [word for word in JARGON if word in f"{wrong} {wrong.hint}"]


def test_an_unknown_key_lists_those_that_are_allowed_there() -> None:
    allowed = "allowed here: damping, dual_step, embedding, head, missing, name, residual, rho, tau"
    assert error(tree(federation__protocol__roh=1)).hint == allowed
    assert error(tree(server__head={"name": "mlp", "x": 1})).hint == "allowed here: dropout, hidden, layers, name"
    assert error(tree(nothing=1)).hint == "allowed here: every_party, federation, launch, parties, search, server"


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"epochs": 3}, "did you mean federation.epochs?"),
        ({"rho": 3}, "did you mean federation.protocol.rho?"),  # no optimiser of the file has one
        ({"federation__threads": 3}, "did you mean server.threads or every_party.threads?"),
        ({"hidden": 3}, "did you mean every_party.model.hidden?"),  # the head is linear
        ({"federation__privacy": {"clip": 1, "steps": {}}}, "it is a key of `mechanism: adaptive`; allowed with `mec"),
        ({"federation__privacy": {"mechanism": "gaussian", "counts": 1}}, "it is a key of `mechanism: discrete`; "),
        ({"federation__protocol__arrivals": True}, "it is a key of `name: czofo, split_avg, vafl`; allowed with "),
        ({"federation__steps": {}}, "allowed here: absence, "),
        ({"every_party__optimiser": {"name": "sgd", "rho": 1}}, "it is a key of `name: adadelta`; "),
        ({"federation__stop": {"patience:3": None}}, "write `patience: 3`, with a space behind the colon"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_where_it_belongs(values: dict[str, Any], hint: str) -> None:
    assert hint in error(tree(**values)).hint


def test_a_missing_key_is_described_as_it_is_there() -> None:
    wrong = error(tree(federation__privacy={"mechanism": "adaptive", "noise_multiplier": 1, "delta": 1e-5}))
    assert str(wrong) == "federation.privacy.clip: missing"
    assert wrong.hint == "t, half the diameter of the region that embeddings are brought into"


def test_a_number_where_text_is_wanted_is_to_be_quoted() -> None:
    assert error(tree(federation__id=3)).hint == "put it in quotes"
    assert error({1: 2, **TREE}).hint == "put it in quotes"


def test_a_key_that_is_not_text_is_reported() -> None:
    assert str(error({**TREE, 1: 2})) == "1: a key must be text"


def test_of_several_wrong_values_one_is_reported() -> None:
    wrong = str(error(tree(federation__batch=0, federation__bach=3, server__threads=-1)))
    assert wrong == "federation.bach: unknown key (did you mean 'batch'?)"


# Sections that members compare.


def hashes(**values: Any) -> dict[str, str]:
    return parse(tree(**values)).federation.hashes()


@pytest.mark.parametrize(
    ("values", "differing"),
    [
        ({"federation__batch": 65}, ["batch"]),
        ({"federation__id": "other"}, ["id"]),
        ({"federation__seed": 1}, ["seed"]),
        ({"federation__shuffle": True}, ["shuffle"]),
        ({"federation__shuffle": {"blocks": 64}}, ["shuffle", "shuffle.blocks", "shuffle.group"]),
        ({"federation__classes": [str(n) for n in range(10)]}, ["classes"]),
        ({"federation__epochs": None, "federation__rounds": 2}, ["epochs", "rounds"]),
        ({"federation__server": PIN}, ["server"]),
        ({"federation__quorum__grace": 1}, ["quorum.grace"]),
        ({"federation__quorum__need": 2}, ["quorum.need"]),
        ({"federation__rows__test": "official"}, ["rows.test"]),
        ({"federation__evaluate__every": 5}, ["evaluate.every"]),
        ({"federation__protocol__rho": 1.5}, ["protocol.rho"]),
        ({"federation__protocol__dual_step": 0.1}, ["protocol.dual_step"]),
        (
            {"federation__protocol": "split"},
            [
                "protocol.dual_step",
                "protocol.head.name",
                "protocol.name",
                "protocol.residual",
                "protocol.rho",
                "protocol.tau",
            ],
        ),
        ({"federation__parties": {"ada": PIN, "bob": ""}}, ["parties.ada"]),
        ({"federation__parties": ["bob", "ada"]}, ["parties"]),
        ({"federation__parties": ["ada", "bob", "cyd"]}, ["parties", "parties.cyd"]),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, list) else "",
)
def test_hashes_differ_in_exactly_the_values_that_do(values: dict[str, Any], differing: list[str]) -> None:
    assert differences(hashes(), hashes(**values)) == differing


@pytest.mark.parametrize(
    "values",
    [
        {"server__listen": "0.0.0.0:9000", "server__head": "mlp", "server__threads": 3},
        {"server": None},
        {"every_party__model": "linear", "every_party__optimiser": "adam"},
        {"every_party": None, "parties": {"bob": {"data": {"source": "csv", "path": "bob.csv"}}}},
        {"federation__protocol__rho": 1},  # the default, as a whole number
        {"federation__protocol": "vimadmm"},
        {"federation__quorum__need": "all"},
        {"federation__parties": {"ada": "", "bob": ""}},
    ],
    ids=["server", "no server", "every party", "one party", "default", "short form", "default word", "long roster"],
)
def test_hashes_are_equal_where_the_federation_is(values: dict[str, Any]) -> None:
    assert hashes(**values) == hashes()


def test_a_copy_with_another_value_has_other_hashes() -> None:
    section = parse(tree()).federation
    before = section.hashes()
    section.hashes().clear(), section.lasting_hashes().clear()
    for deep in (False, True):
        other, same = section.model_copy(update={"batch": 65}, deep=deep), section.model_copy(deep=deep)
        assert differences(before, other.hashes()) == ["batch"]
        assert differences(section.lasting_hashes(), other.lasting_hashes()) == ["batch"]
        assert same.hashes() == section.hashes() == before
    restored = pickle.loads(pickle.dumps(section)).model_copy(update={"seed": 1})
    assert differences(before, restored.hashes()) == ["seed"]


def test_a_section_in_the_memory_of_a_deleted_one_has_its_own_hashes() -> None:
    section, addresses = parse(tree()).federation, set[int]()
    expected = {batch: parse(tree(federation__batch=batch)).federation.hashes()["batch"] for batch in (65, 66)}
    for turn in range(100):
        batch = 65 + turn % 2
        copy = section.model_copy(update={"batch": batch})
        addresses.add(id(copy))
        assert copy.hashes()["batch"] == copy.lasting_hashes()["batch"] == expected[batch]
        del copy
    assert len(addresses) < 100  # else nothing was shown


# Files that `up` writes for every member.


def again(config: Config) -> Config:
    text = yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False)
    return parse(yaml.safe_load(text))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"federation__protocol": "split", "federation__classes": ["a", "b"], "server__head": "./head.py:Head"},
        {"server__optimiser": {"name": "adam", "betas": [0.8, 0.9]}, "federation__rows": {"validation": 50}},
        {"every_party__data": {"source": "csv", "path": "x", "drop": ["a"], "scale": {"mean": 0, "std": 2}}},
        {"every_party__model": {"file": "./tower.py:Tower", "depth": 3}, "federation__quorum__need": 1},
        {"every_party__data__split": {"kind": "patches", "grid": [1, 2]}, "every_party__model": "linear"},
        {"federation__parties": {"ada": PIN, "bob": PIN.upper()}, "federation__server": PIN, "server__identity": "x"},
    ],
    ids=["plain", "split and own head", "adam", "csv", "own tower", "patches", "fingerprints"],
)
def test_a_members_written_configuration_reads_back_equal(values: dict[str, Any]) -> None:
    config = parse(tree(**values))
    assert again(config).model_dump() == config.model_dump()
    assert again(config).federation.hashes() == config.federation.hashes()


def test_the_order_of_the_roster_survives_being_written() -> None:
    names = ["zoe", "ada", "mia"]
    assert again(parse(tree(federation__parties=names))).federation.names == tuple(names)
