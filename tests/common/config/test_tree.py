"""A configuration's file, overrides for one run, and settings shared by all parties."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.federation import read_roster
from colonnade.common.errors import ConfigError
from colonnade.common.parsing import yaml_tree
from colonnade.common.parsing.file import load, parse
from colonnade.common.parsing.yaml_tree import parse_yaml
from tests.common.config.test_config import TREE, error, tree

ROOT = Path(__file__).parents[3]


# Files.


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "federation.yaml"
    path.write_text(text)
    return path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as missing:
        load(path)
    assert str(missing.value) == f"{path}: there is no such file"
    path.symlink_to(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match=r"none\.yaml is a symbolic link to .*nowhere\.yaml, which does not exist"):
        load(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: .*Is a directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "{path}: expected keys and values, the file is empty"),
        ("# nothing yet\n", "{path}: expected keys and values, the file is empty"),
        ("- one\n- two\n", "{path}: expected keys and values, the file holds a list"),
        ("just words\n", "{path}: expected keys and values, the file holds text"),
        ("a: [1, 2\nb: 3\n", "{path} is not YAML: "),
        ("a: 1\n\tb: 2\n", "{path} is not YAML: "),
        ("federation:\n  batch: 1\n  batch: 2\n", "{path} is not YAML: the key 'batch' is given twice"),
        ("a: !!python/object/apply:os.getcwd []\n", "{path} is not YAML: "),
    ],
)
def test_a_file_that_is_no_configuration_is_reported_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as wrong:
        load(path)
    assert str(wrong.value).startswith(said.format(path=path)) and "\n" not in str(wrong.value)


def test_a_file_of_another_encoding_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_bytes("id: Zürich".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"cannot be read: .*utf-8"):
        load(path)


# Two readers: libyaml's, and PyYAML's own for what they may read differently or without end. Every experiment is read
# in test_dump.py.

READ_ALIKE = (
    "a: {b: 1, c: [x, 'y', \"z\"]}\n# !\n",
    "a: !!str 1",
    "!",
    "a: |\n  b\n c",
    "{a:1, b: c?d}",
    "a:\tb",
    "a: Zürich",
    "a: \x07",
    "<<: {a: 1}\na: 2",
    "a: &x {b: 1}\nc: *x",
    "a: &a [*a]",
    "- " * 2998,
    "[" * 5000,
    "a: 1\na: 2",
    "{a: b",
    "a: 2026-99-99",
    'a: "\\uD800"',
    "",
    "- 1_0\n- 0x1f\n- 1e3\n- .inf\n- ~\n- yes\n- 12:30",
    "? [a]\n: b",
    "%YAML 1.1\n---\na: 1",
    "---\na\n---\nb",
    "1: a\n+1: b",
    "a: " + "1" * 5000,
)


def said_of(text: str) -> str:
    try:
        return repr(parse_yaml(text))
    except yaml.YAMLError as refused:
        return str(refused)


@pytest.mark.parametrize("text", READ_ALIKE, ids=range(len(READ_ALIKE)))
def test_it_makes_no_difference_whether_libyaml_is_there(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = said_of(text)
    monkeypatch.setattr(yaml_tree, "FAST", None)
    assert found == said_of(text)


def test_an_ordinary_file_is_read_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a tenth of the time, of which every command has some."""
    read = yaml.load
    used = []
    monkeypatch.setattr(yaml_tree.yaml, "load", lambda text, loader: used.append(loader) or read(text, loader))
    parse_yaml((ROOT / "experiments" / "demo.yaml").read_text())
    assert used == [yaml_tree.FAST] and issubclass(used[0], yaml.CSafeLoader)


# Overrides.


def test_an_override_goes_before_the_file() -> None:
    config = parse(TREE, ("federation.protocol.rho=0.5", "every_party.threads=2", "federation.quorum.need=1"))
    assert config.federation.protocol.model_dump()["rho"] == 0.5
    assert config.parties["ada"].threads == 2
    assert config.federation.quorum.need == 1


def test_the_last_of_two_overrides_counts_and_the_tree_stays_as_it_was() -> None:
    before = copy.deepcopy(TREE)
    assert parse(TREE, ("federation.batch=3", "federation.batch=5")).federation.batch == 5
    assert before == TREE


def test_an_override_may_set_a_whole_section() -> None:
    config = parse(TREE, ("federation.quorum={need: 1, grace: 2}", "server.head=mlp"))
    assert (config.federation.quorum.need, config.federation.quorum.grace) == (1, 2)
    assert config.server is not None and config.server.head.model_dump()["name"] == "mlp"


def test_an_override_fills_a_section_that_the_file_leaves_empty() -> None:
    wrong = tree()
    wrong["federation"]["quorum"] = None
    assert parse(wrong, ("federation.quorum.grace=2",)).federation.quorum.grace == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("federation.batch", "--set federation.batch: expected KEY=VALUE"),
        ("=3", "--set =3: expected KEY=VALUE"),
        ("", "--set : expected KEY=VALUE"),
        ("federation.batch.rows=3", "--set federation.batch.rows=3: federation.batch has no keys, it is 64"),
        (
            "federation.batch=010",
            "--set federation.batch: YAML reads 010 in another base than ten: write it in decimal, or in quotes",
        ),
        ("federation.quorum={need: 1, need: 2}", "--set federation.quorum: the key 'need' is given twice"),
        (
            "federation.rows.test=1e1",
            "federation.rows.test = '1e1': expected a whole number, less than 1 or 'official'",
        ),
        ("federation.bach=3", "federation.bach: unknown key (did you mean 'batch'?)"),
        ("federation.batch=", "federation.batch = nothing: expected a whole number"),
        ("federation.batch=[3", "federation.batch = '[3': expected a whole number"),
        ("federation.protocol.rho=0", "federation.protocol.rho = 0: expected more than 0"),
        ("parties.boc.threads=1", "parties.boc: not in the roster federation.parties (did you mean 'bob'?)"),
    ],
)
def test_a_wrong_override_is_reported_in_one_line(override: str, said: str) -> None:
    assert str(error(TREE, override)) == said


# Settings shared by all parties.


def test_a_partys_own_values_go_before_those_of_every_party() -> None:
    own = {"bob": {"model": {"hidden": 7}, "data": {"split": {"kind": "columns", "take": "random"}}}}
    config = parse(tree(parties=own, every_party__model={"name": "mlp", "hidden": 3}, every_party__threads=2))
    ada, bob = (config.parties[name].model_dump() for name in ("ada", "bob"))
    assert (ada["model"]["hidden"], bob["model"]["hidden"]) == (3, 7)
    assert (ada["data"]["split"]["take"], bob["data"]["split"]["take"]) == ("even", "random")
    assert (bob["data"]["name"], bob["threads"]) == ("digits", 2)


def test_a_section_of_another_kind_takes_nothing_from_that_of_every_party_but_columns() -> None:
    """A model of 5 layers has no `hidden` to inherit: by name, kind or file they are of different kinds."""
    shared = {
        "every_party__model": {"name": "mlp", "hidden": 3},
        "every_party__optimiser": {"name": "sgd", "momentum": 0.5, "lr": 0.3},
        "every_party__data": {
            "source": "sklearn", "name": "digits", "scale": "unit",
            "split": {"kind": "columns", "take": "random"},
        },
    }  # fmt: skip
    own: dict[str, Any] = {
        "ada": {"model": {"name": "cnn"}, "optimiser": {"name": "adam"}, "data": {"split": {"kind": "patches"}}},
        "bob": {"optimiser": {"name": "sgd", "lr": 0.2}, "data": {"source": "csv", "path": "bob.csv", "id": "who"}},
    }
    own["ada"]["data"]["split"]["grid"] = [2, 2]
    ada, bob = (parse(tree(parties=own, **shared)).parties[name].model_dump() for name in ("ada", "bob"))
    assert ada["model"]["name"] == "cnn" and "hidden" not in ada["model"]
    assert ada["optimiser"]["name"] == "adam" and ada["optimiser"]["lr"] != 0.3
    assert (ada["data"]["split"]["kind"], ada["data"]["scale"]) == ("patches", "unit")
    assert (bob["optimiser"]["momentum"], bob["optimiser"]["lr"], bob["model"]["hidden"]) == (0.5, 0.2, 3)
    assert (bob["data"]["source"], bob["data"]["scale"]) == ("csv", "unit")


@pytest.mark.parametrize("own", ["mlp", {"name": "mlp"}, {"hidden": 3}])
@pytest.mark.parametrize("shared", ["mlp", {"name": "mlp", "hidden": 3}])
def test_a_name_alone_is_merged_as_the_section_that_it_stands_for(shared: Any, own: Any) -> None:
    merged = (
        parse(tree(parties={"ada": {"model": own}}, every_party__model=shared)).parties["ada"].model_dump()["model"]
    )
    plain = shared == "mlp" and own in ("mlp", {"name": "mlp"})
    assert merged["name"] == "mlp" and (merged["hidden"] == 3) == (not plain)


SHARED = {"key": "who", "missing": "mean", "scale": "unit", "decimal": ","}


@pytest.mark.parametrize("template", [SHARED, {"source": "csv", "path": "all.csv", "delimiter": ";", **SHARED}])
@pytest.mark.parametrize("source", ["csv", "parquet", "arrow", "npy"])
def test_every_partys_keys_for_tables_hold_for_any_source(template: dict[str, Any], source: str) -> None:
    own = {name: {"data": {"source": source, "path": f"{name}.x"}} for name in ("ada", "bob")}
    for party in parse(tree(every_party__data=template, parties=own)).parties.values():
        read = party.data.model_dump()
        assert {key: read[key] for key in SHARED} == SHARED
        assert read.get("delimiter", ";") == (template.get("delimiter", ",") if source == "csv" else ";")


def test_the_two_names_of_a_key_are_one() -> None:
    own = {"ada": {"data": {"source": "parquet", "path": "a"}}, "bob": {"data": {"path": "b", "key": "whom"}}}
    parties = parse(tree(every_party__data={"source": "csv", "id": "who"}, parties=own)).parties
    assert [party.data.model_dump()["key"] for party in parties.values()] == ["who", "whom"]


def test_a_key_of_every_partys_data_that_no_source_knows_is_not_dropped() -> None:
    wrong = tree(parties={"ada": {"data": {"source": "csv", "path": "x"}}})
    wrong["every_party"]["data"] = {"scael": "unit"}
    assert str(error(wrong)).startswith("every_party.data.scael: unknown key")


def test_an_empty_own_section_takes_everything_from_every_party() -> None:
    wrong = tree(parties={"bob": {}})
    wrong["parties"]["ada"] = None
    config = parse(wrong)
    assert config.parties["ada"] == config.parties["bob"]


def test_a_value_can_be_taken_back_by_a_party() -> None:
    own: dict[str, Any] = {"ada": {"identity": None}}
    config = parse(tree(every_party__identity="keys", parties=own))
    assert (config.parties["ada"].identity, config.parties["bob"].identity) == (None, Path("keys"))


def test_a_file_for_one_party_has_the_federation_and_its_own_section() -> None:
    config = parse(tree(server=None, every_party=None, parties={"bob": TREE["every_party"]}))
    assert config.server is None and list(config.parties) == ["bob"]


def test_a_number_of_parties_names_them_so_that_they_sort() -> None:
    assert parse(tree(federation__parties=2)).federation.names == ("party1", "party2")
    assert parse(tree(federation__parties=12)).federation.names[8:10] == ("party09", "party10")


# Merge keys and aliases.


def merged(levels: int, keys: int) -> str:
    """A text whose every mapping merges the one before so many times."""
    first = ", ".join(f"k{at}: 1" for at in range(keys))
    rest = (f"a{at}: &a{at} {{<<: [{', '.join([f'*a{at - 1}'] * keys)}]}}" for at in range(1, levels))
    return "\n".join([f"a0: &a0 {{{first}}}", *rest])


@pytest.mark.parametrize("text", [merged(8, 9), merged(60, 3)])
def test_merges_of_merges_are_read_in_time(text: str) -> None:
    assert isinstance(parse_yaml(text), dict)


@pytest.mark.parametrize(
    "text",
    [
        f"a: &a {{{', '.join(f'k{at}: 1' for at in range(2000))}}}\nb: {{<<: [{', '.join(['*a'] * 2000)}]}}",
        "a0: &a0 [1]\n" + "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 12)),
        "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{l: *a{n - 1}, r: *a{n - 1}}}\n" for n in range(1, 40)),
        "a: &a {<<: *a, b: 1}",
        "a: &a [*a]",
        "a: {<<: [1, 2]}",
        "a: {<<: 1}",
        "x: &x " + "y" * 20_000 + f"\na: [{', '.join(['*x'] * 60_000)}]",  # 1.2 GB, once it is written out
    ],
)
def test_a_text_that_stands_for_too_much_or_merges_nothing_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        parse_yaml(text)


@pytest.mark.parametrize(
    "number", ["9" * 5000, "0x" + "f" * 5000, "0b" + "1" * 20_000, "0" + "7" * 9000, "1" + ":59" * 90_000]
)
def test_a_whole_number_that_nobody_can_print_is_refused_before_it_is_made(number: str) -> None:
    """PyYAML takes quadratic time for one in base 60; Python raises ValueError where an error shows one."""
    with pytest.raises(yaml.YAMLError, match=r"a whole number of \d+ characters is too large"):
        parse_yaml(f"a: {number}")


@pytest.mark.parametrize("keys", ["1: a\n+1: b", "1: a\ntrue: b", "1: a\n1.0: b", ".nan: a\n.NaN: b", "~: a\nnull: b"])
def test_two_ways_of_writing_one_key_are_the_key_twice(keys: str) -> None:
    """Python's dictionary has the first key with the last value."""
    with pytest.raises(yaml.YAMLError, match="is given twice, once as"):
        parse_yaml(keys)


@pytest.mark.parametrize("number", ["010", "-0x8", "0b1", "0_7", "1:30", "1:30.5"])
def test_a_number_in_another_base_is_refused_unless_it_is_text(number: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"(?s)YAML reads {number} in another base than ten.*line 2"):
        parse_yaml(f"b: 1_0\na: [{number}]")
    assert parse_yaml(f"a: [{number!r}, 0, 0.5, 1_0, -7]") == {"a": [number, 0, 0.5, 10, -7]}


TRUE_KEYS = ("federation.batch", "federation.rows.train", "federation.quorum.need", "federation.protocol.rho",
             "federation.stop.patience", "every_party.optimiser.lr", "every_party.chaos.drop")  # fmt: skip


@pytest.mark.parametrize("key", TRUE_KEYS)
def test_a_truth_value_is_no_number(key: str) -> None:
    assert str(error(TREE, f"{key}=yes")).startswith(f"{key} = true: expected a ")


def test_a_truth_value_within_a_value_is_no_number_either() -> None:
    said = str(error(TREE, "every_party.chaos.drop={Embedding: on}"))
    assert said == "every_party.chaos.drop: expected a number"


def test_a_number_with_an_exponent_is_a_fraction_too() -> None:
    assert parse(TREE, ("federation.rows.test=1e-1",)).federation.rows.test == 0.1


@pytest.mark.parametrize("number", ["1.0e-300", "1e-300", "1.0e+39", "-1.0e-45"])
def test_a_number_that_float32_makes_nothing_or_infinite_is_refused(number: str) -> None:
    for key in ("every_party.data.scale={mean: 0, std: %s}", "every_party.optimiser.lr=%s"):
        found = error(TREE, key % number)
        where = "every_party.data.scale.std" if "scale" in key else "every_party.optimiser.lr"
        assert str(found).startswith(f"{where} = ")
        assert number[0] == "-" or "a number that float32 holds: between 1.2e-38 and 3.4e38" in str(found)


def test_a_date_is_no_id_unless_it_is_quoted() -> None:
    wrong = error(TREE, "federation.id=2024-01-01")
    assert (str(wrong), wrong.hint) == ("federation.id = 2024-01-01: expected text", "put it in quotes")


def test_no_party_has_the_name_of_the_section_for_all() -> None:
    said = str(error(tree(federation__parties=["ada", "every_party"])))
    assert said == "federation.parties: 'every_party' is the section for all parties, no party's"


def test_a_file_that_never_ends_is_no_configuration() -> None:
    with pytest.raises(ConfigError, match="/dev/zero has more than 16 MB"):
        load(Path("/dev/zero"))


KEYS = st.sampled_from(["a", "b", "c", "d"])
SECTIONS = st.dictionaries(KEYS, st.integers(0, 9), max_size=3)


@given(SECTIONS, SECTIONS, SECTIONS, st.sampled_from(["*x", "[*x, *y]", "[*y, *x]", "[*x, *x]"]))
def test_merges_mean_what_pyyaml_makes_of_them(
    one: dict[str, int], other: dict[str, int], own: dict[str, int], what: str
) -> None:
    pairs = "".join(f", {key}: {value}" for key, value in own.items())
    text = f"x: &x {one}\ny: &y {other}\nz: &z {{<<: {what}{pairs}}}\nlast: {{<<: *z, e: 1}}".replace("'", "")
    assert parse_yaml(text) == yaml.safe_load(text)


def test_five_thousand_keys_are_read_and_the_second_of_a_name_is_found() -> None:
    keys = "".join(f"k{at}: 1\n" for at in range(5_000))
    assert len(parse_yaml(keys)) == 5_000
    with pytest.raises(yaml.YAMLError, match="'k7' is given twice"):
        parse_yaml(keys + "k7: 1\n")
    names = [f"p{at}" for at in range(5_000)]
    assert len(read_roster(names)) == 5_000
    with pytest.raises(ConfigError, match="'p3' is listed twice"):
        read_roster([*names, "p3"])
