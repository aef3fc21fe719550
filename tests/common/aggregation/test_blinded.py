"""Settings that conflict with blinded sums, and warnings."""

from __future__ import annotations

import pytest

from colonnade.common.config.policy import PolicyConfig
from colonnade.common.errors import ConfigError
from tests.protocols.test_blinded import BLIND, run
from tests.support.federation import config


@pytest.mark.parametrize(
    ("name", "sets", "error", "hint"),
    [
        ("fdml", ("federation.blinding.least=5",), r"blinding\.least = 5: there are 4 parties", "take more parties"),
        ("fdml", ("federation.quorum={need: 2, grace: 1}",), r"quorum\.need = 2: .* at least 3", "{need: 3, grace"),
        (
            "fdml",
            ("federation.quorum={need: 2, grace: 1}", "federation.blinding.least=2"),
            r"quorum\.need = 2: sums of 2 of 4 parties: the server could split",
            "{need: 3, grace",
        ),
        ("fdml", ("federation.quorum={fastest: 3}",), r"quorum\.need = 3 without grace", "{need: 3, grace: SECONDS}"),
        ("fdml", ("federation.compress.up=8",), r"compress\.up = 8: masked words", "leave it out"),
        ("vimadmm_j", ("federation.participation=0.5",), r"participation = 0\.5: a blinded sum", "leave it out"),
        ("vimadmm_j", ("federation.protocol.update=variables",), r"protocol\.update = variables", "to signal"),
        ("split_avg", ("federation.protocol.combine=max",), r"protocol\.combine = max: only averages", "average"),
        ("split_avg", ("federation.protocol.arrivals=true",), r"protocol\.arrivals = true: only", "without arrivals"),
        ("fdml", ("federation.blinding.bits=16",), r"blinding\.bits = 16: expected 32 or 64", ""),
        ("fdml", ("federation.blinding.least=1",), r"blinding\.least = 1: expected at least 2", ""),
        ("fdml", ("federation.blinding.bound=1e-300",), r"bound = 1e-300: .* a number that float32 holds", ""),
    ],
)
def test_options_that_cannot_be_blinded_are_refused_with_an_alternative(
    name: str, sets: tuple[str, ...], error: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=error) as refused:
        config({**BLIND[name], "aggregate": "blinded"}, *sets)
    assert hint in str(refused.value.hint)


def test_a_party_requires_sums_of_three_by_default() -> None:
    """Two parties know each other's part from the sum."""
    blind = config({**BLIND["fdml"], "aggregate": "blinded"}, "federation.blinding.least=2").federation
    with pytest.raises(ConfigError, match=r"party1\.policy\.min_parties = 3: .* has blinding\.least = 2") as refused:
        PolicyConfig().refuse("party1", blind)
    assert "change your policy" in refused.value.hint
    PolicyConfig(min_parties=2).refuse("party1", blind)
    PolicyConfig().refuse("party1", config(BLIND["fdml"], "federation.blinding.least=2").federation)


def test_sums_of_two_are_warned_of() -> None:
    quorum = ("federation.parties=3", "federation.quorum={need: 2, grace: 1}")
    two = ("federation.blinding.least=2", *quorum, "every_party.policy.min_parties=2")
    reasons = {(e["party"], e["reason"]) for e in run("fdml", *two).of_kind("warning")}
    assert ("party3", "sums may be of two parties: either that shows its part to the server shows the other's") in (
        reasons
    )
