"""Texts of errors that other members report."""

from __future__ import annotations

import pytest

from colonnade.common.errors import MemberFailed, PartyFailed


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (
            "party1 was lost: no Embedding for round 3 within 20 s",
            "party1 was lost: no Embedding for round 3 within 20 s",
        ),
        ("'party1' was cut off: it sent Begin out of turn", "'party1' was cut off: it sent Begin out of turn"),
        ("party1 sent Embedding.h: expected 64 rows, got 3", "party1 sent Embedding.h: expected 64 rows, got 3"),
        ("party1 failed: its disk is full", "party1 failed: its disk is full"),
        ("party2 was lost: it is gone", "party1 failed: party2 was lost: it is gone"),
        ("party11 was lost: it is gone", "party1 failed: party11 was lost: it is gone"),
        ("party1: its keys have changed", "party1 failed: its keys have changed"),
        ("it cannot go on with its own data", "party1 failed: it cannot go on with its own data"),
    ],
)
def test_a_reason_that_names_its_party_is_said_once(reason: str, said: str) -> None:
    failed = PartyFailed("party1", reason)
    assert str(failed) == said and failed.reason == failed.shared == reason
    assert str(MemberFailed("party1", reason)) == f"party1: {reason.removeprefix('party1: ')}"
