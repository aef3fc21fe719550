"""Versions: their form, and which work together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.version import VERSION, VersionNumber, read_version, series, works_with

GROUPS = (
    ("0.2.0", "0.2.9", "0.2.0.dev0", "0.2.1rc1", "0.2.0.post3", "0.2.0a1.dev2"),
    ("0.3.0", "0.3.0b2"),
    ("0.20.0",),
    ("1.0.0", "1.9.3", "1.20.0rc1"),
    ("2.0.0",),
    ("20.0.0",),
)


def test_versions_of_one_series_work_together_and_no_others() -> None:
    for group, other in itertools.product(GROUPS, GROUPS):
        for ours, theirs in itertools.product(group, other):
            assert works_with(ours, theirs) is (group is other), (ours, theirs)


def test_our_own_version_has_the_form() -> None:
    assert works_with(VERSION, VERSION)
    assert VERSION.startswith(series(VERSION).removesuffix("x"))


@pytest.mark.parametrize(("version", "named"), [("0.2.7", "0.2.x"), ("3.1.4", "3.x"), ("strange", "strange")])
def test_a_series_has_a_name(version: str, named: str) -> None:
    assert series(version) == named


@given(st.tuples(*[st.integers(0, 999_999)] * 3), st.sampled_from(["", "a1", "rc12", ".post1", ".dev0", "b2.dev3"]))
def test_every_version_of_the_form_is_read(numbers: tuple[int, int, int], suffix: str) -> None:
    text = ".".join(map(str, numbers)) + suffix
    assert read_version(text) == VersionNumber(*numbers, suffix)


@given(st.text() | st.from_regex(r"\d+\.\d+\.\d+") | st.from_regex(r"[0-9.]{1,60}"))
def test_any_text_is_read_as_the_same_numbers_or_not_at_all(text: str) -> None:
    found = read_version(text)
    if found is not None:
        assert f"{found.major}.{found.minor}.{found.patch}{found.suffix}" == text and text.isascii()
    assert works_with(text, text) is (found is not None)
