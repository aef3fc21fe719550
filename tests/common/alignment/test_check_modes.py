"""Checks of an alignment that a configuration cannot have, refused when it is read."""

from __future__ import annotations

import sys

import pytest

from colonnade.common.alignment.checks import checks_of, one_time
from colonnade.common.errors import ConfigError
from tests.support.alignment import federation


@pytest.mark.parametrize("align", ["none", "sorted"])
@pytest.mark.parametrize("checks", ["signed", "planted", "proofs"])
def test_there_is_nothing_to_check_without_an_intersection(align: str, checks: str) -> None:
    with pytest.raises(ConfigError, match=f"align_checks = {checks} with federation.align = {align}") as refused:
        federation(2, align, align_checks=checks)
    assert "align: psi" in refused.value.hint


def test_proofs_need_two_parties() -> None:
    """The server is both neighbours of a single party, and would know its shuffle."""
    with pytest.raises(ConfigError, match="proofs with one party") as refused:
        federation(1, align_checks="proofs")
    assert "planted" in refused.value.hint


def test_proofs_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coincurve", None)
    with pytest.raises(ConfigError, match="coincurve is not installed") as refused:
        federation(2, align_checks="proofs")
    assert "colonnade[proofs]" in refused.value.hint
    assert federation(2, align_checks="planted").align_checks == "planted"


def test_predictions_sign_their_lists_and_secrets_are_drawn_for_one_alignment_where_it_matters() -> None:
    assert [checks_of(mode, whole=False) for mode in ("none", "signed", "planted", "proofs")] == [
        "none",
        *["signed"] * 3,
    ]
    assert [one_time(mode) for mode in ("none", "signed", "planted", "proofs")] == [False, False, True, True]
