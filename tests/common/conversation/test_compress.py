"""Values of `federation.compress`, and their names in the ledger."""

from __future__ import annotations

import re

import pytest
import torch

from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.compression import arriving
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.forms import AS_IS, Coded, Form, Largest, Signs
from colonnade.common.privacy.release import QuantisedRelease, release_clear
from tests.support.federation import config, federate


def with_up(up: str) -> Config:
    return config({"name": "vimadmm"}, f"federation.compress.up={up}")


def agreed(up: str) -> FederationConfig:
    return with_up(up).federation


@pytest.mark.parametrize(
    ("up", "form"),
    [
        ("32", AS_IS),
        ("16", Coded(16)),
        ("4", Coded(4)),
        ("{bits: 4}", Coded(4)),
        ("{bits: 32}", AS_IS),
        ("{bits: 4, rounding: nearest}", Coded(4, nearest=True)),
        ("{bits: 8, scale: column}", Coded(8, by_column=True)),
        ("{bits: 2, scale: symmetric}", Coded(2, symmetric=True)),
        ("{top: 0.1}", Largest(0.1)),
        ("{sign: true}", Signs()),
    ],
)
def test_both_ends_apply_the_configured_forms(up: str, form: Form) -> None:
    assert form_of(agreed(up).compress.up) == form
    assert form_of(agreed(up).compress.down) == AS_IS


@pytest.mark.parametrize("value", ["true", "4.5", "'4'", "0", "9", "-1", "12", "33", "8.0", "[4]", "few"])
def test_only_so_many_bits_and_whole_ones(value: str) -> None:
    with pytest.raises(ConfigError) as short:
        with_up(value)
    assert str(short.value).startswith("federation.compress.up")
    assert "expected one of 1, 2, 3, 4, 5, 6, 7, 8, 16 or 32" in str(short.value)
    with pytest.raises(ConfigError) as long:
        with_up(f"{{bits: {value}}}")
    assert str(long.value).startswith("federation.compress.up.bits")
    whole = "expected a whole number" if value == "true" else "expected one of 1, 2, 3, 4, 5, 6, 7, 8, 16 or 32"
    assert whole in str(long.value)


@pytest.mark.parametrize(
    ("up", "said"),
    [
        ("{bits: 16, rounding: nearest}", r"compress\.up: 16 bits have no scale to round to: leave out rounding"),
        ("{bits: 32, scale: tensor}", r"compress\.up: 32 bits have no scale to round to: leave out scale"),
        ("{bits: 4, rounding: up}", r"compress\.up\.rounding = 'up': expected 'stochastic' or 'nearest'"),
        ("{bits: 4, scale: row}", r"compress\.up\.scale = 'row': expected 'tensor', 'column' or 'symmetric'"),
        ("{bits: 4, round: nearest}", r"compress\.up\.round: unknown key"),
        ("{rounding: nearest}", r"compress\.up\.bits: missing"),
        ("{top: 0}", r"compress\.up\.top = 0: expected more than 0"),
        ("{top: 1}", r"compress\.up\.top = 1: expected less than 1"),
        ("{top: 0.1, bits: 4}", r"compress\.up\.bits: unknown key"),
        ("{top: 0.1, sign: true}", r"compress\.up\.sign: unknown key"),
        ("{sign: false}", r"compress\.up\.sign = false: expected true"),
        ("{sign: true, scale: column}", r"compress\.up\.scale: unknown key"),
    ],
)
def test_meaningless_settings_are_refused(up: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^federation.{said}"):
        with_up(up)


def test_two_ways_of_saying_the_same_agree_and_others_do_not() -> None:
    long = "{bits: 4, rounding: stochastic, scale: tensor}"
    assert agreed("4").hashes() == agreed(long).hashes()
    assert agreed("4").hashes() != agreed("{bits: 4, scale: column}").hashes()
    assert agreed("{top: 0.1}").hashes() != agreed("{top: 0.2}").hashes()


@pytest.mark.parametrize("up", ["{bits: 4, scale: column}", "{top: 0.1}", "{sign: true}"])
@pytest.mark.parametrize("protocol", [{"name": "fdml", "aggregate": "blinded"}, {"name": "fedvs", "segments": 1}])
def test_exact_tensors_are_not_compressed(protocol: dict, up: str) -> None:
    with pytest.raises(ConfigError, match=r"federation.compress.up = (4 bits by column|top 0.1|sign)"):
        config(protocol, f"federation.compress.up={up}")


@pytest.mark.parametrize(
    ("up", "named"),
    [
        ("4", "none, 4 bits"),
        ("16", "none, 16 bits"),
        ("{bits: 4, scale: column}", "none, 4 bits by column"),
        ("{bits: 4, rounding: nearest}", "none, 4 bits nearest"),
        ("{top: 0.1}", "none, top 0.1"),
        ("{sign: true}", "none, sign"),
    ],
)
def test_the_ledger_names_the_form(up: str, named: str) -> None:
    stage = QuantisedRelease(release_clear, form_of(agreed(up).compress.up), AS_IS, torch.Generator())
    released = stage(torch.randn(5, 3))
    assert released.mechanism == named
    assert released.packed is not None and re.sub("^none, ", "", named) == str(released.packed.form)


def test_evaluations_may_travel_otherwise_than_training() -> None:
    """In a whole run: three bits up, and evaluations as they are, or in eight bits."""
    sets = ("federation.rounds=2", "federation.epochs=0", "federation.evaluate.every=2")
    protocol = {"name": "split", "embedding": 16}
    kinds = CONTRACTS["split"].kinds
    for evaluate, form in (("32", AS_IS), ("8", Coded(8)), ("{sign: true}", Signs())):
        cfg = config(protocol, *sets, f"federation.compress={{up: 3, evaluate: {evaluate}}}")
        came = arriving(cfg.federation.compress, kinds)
        assert came["Evaluation"] == form and came["Embedding"] == Coded(3)
        outcome = federate(cfg)
        sent = [m for sender, _, m in outcome.messages if sender == "party1"]
        assert {m.packed["h"].form for m in sent if type(m).__name__ == "Embedding"} == {Coded(3)}
        forms = {m.packed["h"].form if m.packed else AS_IS for m in sent if type(m).__name__ == "Evaluation"}
        assert forms == {form}
    packed = config(protocol, "federation.compress.up=4").federation.compress
    assert arriving(packed, kinds)["Evaluation"] == Coded(4)
