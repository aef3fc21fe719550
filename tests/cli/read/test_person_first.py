"""Epsilon of a person with a row at every party stands before that of one party, wherever a run's privacy is said."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from colonnade.common.tracking.allowed import epsilons
from tests.support.federation import tree
from tests.support.household import colonnade

SECRET = {"clip": 1, "noise_multiplier": 60, "delta": 1e-5}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("person")
    made = tree({"name": "split"}, rounds=4, epochs=0, privacy=SECRET)
    (folder / "federation.yaml").write_text(yaml.safe_dump(made))
    found = {"check": colonnade("check", folder / "federation.yaml")[1]}
    found["simulate"] = colonnade("simulate", folder / "federation.yaml", "--out", folder / "run")[1]
    assert colonnade("card", folder / "run", "--out", folder / "card.md")[0] == 0
    assert colonnade("report", folder / "run", "--out", folder / "report.html")[0] == 0
    found["card"], found["report"] = (folder / "card.md").read_text(), (folder / "report.html").read_text()
    found["summary"] = (folder / "run" / "summary.json").read_text()
    return found


@pytest.mark.parametrize("where", ["check", "simulate", "card", "report"])
def test_a_persons_epsilon_is_the_first(outputs: dict[str, str], where: str) -> None:
    person = json.loads(outputs["summary"])["person"]["epsilon"]
    text = " ".join(outputs[where].lower().split())
    first = re.search(r"epsilon ([\d.]+\d)", text)
    assert first is not None and float(first[1]) == pytest.approx(person, abs=0.006), text[:400]
    assert 0 <= text.find("a person at all 4 parties: epsilon") < text.find("one party alone: epsilon")


def test_in_the_summary_and_for_trackers(outputs: dict[str, str]) -> None:
    summary = json.loads(outputs["summary"])
    assert list(summary).index("person") < list(summary).index("epsilon")
    sent = epsilons(summary, ("party1",))
    assert sent == {"epsilon_of_a_person": summary["person"]["epsilon"], "epsilon/party1": summary["epsilon"]["party1"]}
    assert list(sent) == ["epsilon_of_a_person", "epsilon/party1"]


def test_no_number_stands_for_a_person_without_a_bound() -> None:
    assert epsilons({"person": {"epsilon": None}, "epsilon": {"a": 1.0}}, ("a",)) == {"epsilon/a": 1.0}
