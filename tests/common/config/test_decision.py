"""`server.decide` and `server.calibrate`: short forms, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.common.config.members import DecideConfig, ServerConfig
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from tests.common.config.test_config import tree


def two(server: dict[str, Any], **federation: Any) -> ServerConfig:
    made = tree(**{f"federation__{key}": value for key, value in {"classes": 2, **federation}.items()})
    made["server"] |= server
    parsed = parse(made).server
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("f1", DecideConfig(by="f1")),
        ({"by": "youden"}, DecideConfig(by="youden")),
        (0.3, DecideConfig(at=0.3)),
        (
            {"by": "cost", "false_positive": 1, "false_negative": 8},
            DecideConfig(by="cost", false_positive=1, false_negative=8),
        ),
    ],
)
def test_a_name_and_a_number_stand_for_a_section(given: Any, read: DecideConfig) -> None:
    found = two({"decide": given, "calibrate": "platt"})
    assert (found.decide, found.calibrate) == (read, "platt")
    assert (two({}).decide, two({}).calibrate) == (None, "none")


@pytest.mark.parametrize(
    ("server", "federation", "message"),
    [
        ({"decide": "f2"}, {}, r"server\.decide = 'f2': expected 'f1', 'youden' or 'cost'"),
        ({"decide": {}}, {}, r"server\.decide: neither by nor at is given"),
        ({"decide": {"by": "f1", "at": 0.2}}, {}, r"server\.decide: both by and at are given"),
        ({"decide": {"by": "cost", "false_positive": 1}}, {}, r"by = cost: false_negative not given"),
        ({"decide": {"by": "f1", "false_positive": 1}}, {}, r"decide\.false_positive without by: cost"),
        ({"decide": 1.0}, {}, r"server\.decide = 1\.0: expected less than 1"),
        ({"decide": {"by": "cost", "false_positive": 0, "false_negative": 1}}, {}, r"false_positive = 0"),
        ({"decide": {"threshold": 0.3}}, {}, r"server\.decide\.threshold: unknown key"),
        ({"decide": True}, {}, r"server\.decide"),
        ({"decide": "f1"}, {"classes": 3}, r"server\.decide with 3 classes: it is of the positive one of two"),
        ({"calibrate": "platt"}, {"classes": 10}, r"server\.calibrate with 10 classes"),
        ({"calibrate": "sigmoid"}, {}, r"server\.calibrate = 'sigmoid'"),
        ({"decide": "f1"}, {"rows": {"validation": 0}}, r"server\.decide: there are no validation rows"),
        ({"decide": 0.3, "calibrate": "platt"}, {"rows": {"validation": 0}}, r"server\.calibrate: there are no valid"),
        (
            {"calibrate": "isotonic", "privacy": {"labels": {"epsilon": 1}}},
            {},
            r"server\.calibrate = isotonic with server\.privacy\.labels: .* labels, which no noise covers",
        ),
    ],
)
def test_what_cannot_be_decided_is_refused_with_the_reason(
    server: dict[str, Any], federation: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        two(server, **federation)


def test_a_given_threshold_needs_no_rows_and_numbers_have_none() -> None:
    assert two({"decide": 0.3}, rows={"validation": 0}).decide == DecideConfig(at=0.3)
    made = tree(federation__task="regression", federation__targets=1)
    del made["federation"]["classes"]
    made["server"]["decide"] = "f1"
    with pytest.raises(ConfigError, match=r"server\.decide with federation\.task = regression: there are no classes"):
        parse(made)
