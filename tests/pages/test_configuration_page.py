"""docs/configuration.md lists every key as the code reads it, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from colonnade.common.contracts.registry import NAMES
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.reference import protocol_section, sections
from colonnade.common.parsing.yaml_tree import share_template
from colonnade.reports.reference_page import MARK, OPENAPI, PAGE, ROOT, openapi, page
from tests.common.config.test_config import tree

TEXT = (ROOT / PAGE).read_text()
HEAD = TEXT.partition(MARK)[0]


def test_every_key_has_a_description() -> None:
    found = sections()
    assert len(found) > 90 and sum(len(section.keys) for section in found) > 450
    assert not [(one.path, one.kind, key.name) for one in found for key in one.keys if not key.meaning.strip()]
    assert not [(one.path, one.kind) for one in found if not one.about]


def test_a_description_is_plain_text_without_a_full_stop() -> None:
    wrong = [key.meaning for section in sections() for key in section.keys if key.meaning.endswith((".", " "))]
    assert not wrong


def test_the_generated_files_are_up_to_date() -> None:
    assert page(TEXT) == TEXT, "make reference"
    assert openapi() == (ROOT / OPENAPI).read_text(), "make reference"


def test_a_page_without_the_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="no line"):
        page("# Configuration")


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_lists_its_own_keys_first_its_name(name: str) -> None:
    keys = protocol_section(name).keys
    assert keys[0].name == "name" and keys[0].default == name


def blocks() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", HEAD, re.S)


def cells(header: str) -> list[list[str]]:
    """Rows of the table with this header, as texts without code marks."""
    table = HEAD[HEAD.index(header) :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_the_example_is_allowed_and_merges_as_the_page_says() -> None:
    example = yaml.safe_load(blocks()[0])
    parse(example)
    merged = share_template(example)["parties"]
    rows = cells("| party | `data`")
    assert [row[0].strip("`") for row in rows] == list(merged)
    for name, *values in rows:
        own = merged[name.strip("`")]
        told = dict(
            zip(("data", "model", "optimiser"), (yaml.safe_load(value.strip("`")) for value in values), strict=True)
        )
        assert own == told


def test_short_forms_mean_what_the_page_says() -> None:
    rows = cells("| key | short | long |")
    assert len(rows) == 13
    for keys, shorts, long in rows:
        for key in re.findall("`([^`]+)`", keys):
            path = key if key.startswith("federation.") else f"every_party.{key}"
            told = [yaml.safe_load(word) for word in (*re.findall("`([^`]+)`", shorts), long.strip("`"))]
            read = [parse(tree(**{path.replace(".", "__"): value})) for value in told]
            assert all(config == read[-1] for config in read), key


def test_the_page_is_in_the_navigation() -> None:
    assert "configuration.md" in (Path(ROOT) / "mkdocs.yml").read_text()
