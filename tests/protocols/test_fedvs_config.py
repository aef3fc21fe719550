"""Refusals of FedVS: every message names the value, the expectation and the remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.errors import ConfigError, DataError
from colonnade.common.protocols.fedvs import Config
from tests.support.federation import config, federate

FEDVS = {"name": "fedvs", "embedding": 4}
NETWORKS = (
    "federation.parties=7",
    "federation.rounds=1",
    "federation.epochs=0",
    "every_party.model={name: polynomial, layers: 2}",
    "every_party.data.scale=unit",
)


@pytest.mark.parametrize(
    ("sets", "said", "hint"),
    [
        (("segments=4",), "7 parties cannot decode K = 4, T = 1: at least 9", "must not exceed their number"),
        (("masks=4",), "7 parties cannot decode K = 1, T = 4: at least 9", "lower `segments` (K) or `masks` (T)"),
        (("stragglers=5",), "stragglers = 5: with masks = 1 at least 3 of the 7 parties", "take stragglers up to 4"),
        (("stragglers=3", "masks=3"), "stragglers = 3: with masks = 3 at least 7 of the 7", "take stragglers up to 0"),
        (("prime=91",), "the field's p is 91, it must be an odd prime up to 2147483647", "take 89"),
        (("prime=2147483659",), "the field's p is 2147483659", "take 2147483647"),
        (("prime=7",), "the 10 points of a Lagrange code are not distinct", "a p larger than K + T + N"),
        (("segments=half",), "federation.protocol.segments = 'half'", ""),
    ],
)
def test_a_code_that_cannot_be(sets: tuple[str, ...], said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(FEDVS, *NETWORKS, *(f"federation.protocol.{each}" for each in sets))
    assert said in str(refused.value) and hint in refused.value.hint
    assert str(refused.value).count("federation.protocol") == 1


@pytest.mark.parametrize(
    ("sets", "said", "hint"),
    [
        ("federation.absence=wait", "federation.absence = wait: a party that comes back needs new keys", "rollback"),
        ("federation.privacy={clip: 1, noise_multiplier: 1}", "federation.privacy with the protocol fedvs", "leave it"),
        ("federation.compress.up=8", "federation.compress.up = 8 with the protocol fedvs", "compress.down"),
    ],
)
def test_sections_that_do_not_go_with_it(sets: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(FEDVS, *NETWORKS, sets)
    assert said in str(refused.value) and hint in refused.value.hint


def test_gradients_may_be_compressed() -> None:
    assert config(FEDVS, *NETWORKS, "federation.compress.down=8").federation.compress.down == 8


@given(more=st.integers(0, 29), stragglers=st.integers(0, 40), masks=st.integers(1, 5))
def test_auto_takes_the_largest_that_allows_the_stragglers_or_refuses(more: int, stragglers: int, masks: int) -> None:
    parties = 2 * masks + 1 + more
    asked = Config(stragglers=stragglers, masks=masks)
    allowed = [k for k in range(1, 41) if parties - (2 * (k + masks - 1) + 1) >= stragglers]
    if allowed:
        assert asked.code(parties).segments == max(allowed)
    else:
        with pytest.raises(ConfigError, match=f"stragglers = {stragglers}"):
            asked.code(parties)


@pytest.mark.parametrize(
    ("sets", "error", "said"),
    [
        (("every_party.model={name: mlp}",), ConfigError, r"parties.party\d.model: fedvs computes on shares"),
        (
            ("federation.protocol.columns=19",),
            ConfigError,
            r"party1 has 21 columns .* federation.protocol.columns is 19",
        ),
        (("federation.protocol.prime=101",), DataError, r"party\d: the data are not all finite, or with 6 bits leave"),
        (
            ("federation.protocol.prime=1048573",),
            DataError,
            r"party\d: its embedding could leave its part of the field",
        ),
        (
            ("federation.rows={validation: 0, test: 1795}", "federation.batch=2", "federation.protocol.segments=3"),
            ConfigError,
            r"federation.protocol.segments = 3: there are 2 training rows",
        ),
    ],
)
def test_conflicts_visible_only_in_the_data_end_a_run(sets: tuple[str, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        federate(config(FEDVS, *NETWORKS, *sets))
