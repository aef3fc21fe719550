"""A member's endpoints, as set by its section and its environment."""

from __future__ import annotations

import pytest

from colonnade.cli.run.member import watched
from colonnade.common.errors import ConfigError
from tests.support.federation import config

OWN = config({"name": "split"}).parties["party1"]


def test_the_environment_supplies_settings_missing_in_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(OWN) == OWN
    monkeypatch.setenv("COLONNADE_HEALTH", "7401")
    monkeypatch.setenv("COLONNADE_METRICS", "0.0.0.0:9400")
    found = watched(OWN)
    assert (found.health, found.metrics) == ("127.0.0.1:7401", "0.0.0.0:9400")
    asked = OWN.model_copy(update={"health": "[::]:1"})
    assert (watched(asked).health, watched(asked).metrics) == ("[::]:1", "0.0.0.0:9400")


def test_an_address_that_is_none_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_METRICS", "nowhere")
    with pytest.raises(ConfigError, match="COLONNADE_METRICS = 'nowhere': expected HOST:PORT"):
        watched(OWN)
