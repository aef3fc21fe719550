"""Epsilon in words: no noise multiplier without it, in checks, at the beginning of runs, in hints, demos and starts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from colonnade.common.config.privacy import PROPOSED, LabelPrivacyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import load, parse
from colonnade.common.privacy.accounting.plan import LITTLE
from colonnade.common.privacy.labels import NoisyLabels, label_noise
from colonnade.server.member.planned import planned
from tests.cli.data.test_wrong_input import run
from tests.cli.data.test_wrong_input import write as write_file
from tests.support.federation import config, federate
from tests.support.household import colonnade
from tests.support.oracles import exact_epsilon
from tests.support.rooms import CODE

ROOT = Path(__file__).parents[4]
ROWS = {"digits": (1797, 0), "adult": (48842, 16281), "mnist": (70000, 10000), "cifar10": (60000, 10000)}
"""Rows of the data sets of the experiments, and how many of them are the official test rows."""


def said(*sets: str, rows: int = 1797, protocol: str = "split") -> list[tuple[str, bool]]:
    cfg = config({"name": protocol, "embedding": 8}, *sets)
    return [tuple(each) for each in planned(cfg.federation, cfg.server, Schedule(cfg.federation, rows, 0))]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"epsilon ([\d.]+\d)", text)]


def test_a_party_and_a_person_have_their_epsilons() -> None:
    sets = ("federation.privacy={clip: 1, noise_multiplier: 60, delta: 1.0e-5}",)
    ((text, weak),) = said(*sets)
    releases = int(re.search(r"(\d+) releases", text)[1])  # type: ignore[index]
    party, person = (exact_epsilon([(60, count)], 1e-5, replace=True) for count in (releases, 4 * releases))
    assert numbers(text) == pytest.approx([person, party], abs=0.006) and not weak
    assert "noise multiplier 60" in text and "at delta 1e-05" in text and "a person at all 4 parties" in text


@pytest.mark.parametrize("federation", ["{clip: 1, noise_multiplier: 60}", "{clip: 1, epsilon: 4, accounting: renyi}"])
def test_what_is_foretold_is_what_the_run_spends(federation: str) -> None:
    sets = (f"federation.privacy={federation}", "federation.epochs=2")
    text = said(*sets)[0][0]
    outcome = federate(config({"name": "split", "embedding": 8}, *sets))
    plan, spent = outcome.server.schedule.privacy, [privacy.releases for privacy in outcome.privacy.values()]
    assert plan is not None
    assert numbers(text) == [round(plan.person_epsilon(spent), 2), round(plan.epsilon(max(spent)), 2)]
    events = [event["said"] for event in outcome.events if event["kind"] == "privacy"]
    assert events[0] == text
    kinds = [event["kind"] for event in outcome.events]
    assert kinds.index("privacy") < kinds.index("begin")


def test_a_large_epsilon_is_called_little_protection() -> None:
    (text, weak), (little, weak_too) = said("federation.privacy={clip: 1, noise_multiplier: 1}")
    assert not weak and weak_too and numbers(text)[0] > LITTLE < numbers(text)[1]
    assert f"epsilon {numbers(text)[0]:.2f} is above 20 and protects little" in little


def test_a_persons_epsilon_counts_though_a_partys_is_small() -> None:
    lines = said("federation.privacy={clip: 1, epsilon: 15}")
    assert numbers(lines[0][0])[1] <= 15 < 20 < numbers(lines[0][0])[0] and len(lines) == 3


@pytest.mark.parametrize(
    ("privacy", "reason"),
    [
        ("{mechanism: adaptive, clip: 1, noise_multiplier: 3, delta: 1.0e-5}", "no bound for a row"),
        ("{clip: 1, noise_multiplier: 60, seeded: true}", "drawn from the federation's seed"),
        ("{clip: 1, noise_multiplier: 60, evaluate: clean}", "evaluations left in the clear"),
    ],
)
def test_no_guarantee_is_said_first(privacy: str, reason: str) -> None:
    text, weak = said(f"federation.privacy={privacy}", "federation.benchmark=true")[0]
    assert weak and text.startswith("federation.privacy: no guarantee: ") and reason in text and numbers(text)


def test_a_delta_above_one_in_all_rows_is_warned_of() -> None:
    sets = ("federation.privacy={clip: 1, noise_multiplier: 60, delta: 0.01}", "federation.benchmark=true")
    *_, (text, weak) = said(*sets)
    assert weak and "delta 0.01 is not below 1/1797 = 0.00056" in text
    with pytest.raises(ConfigError, match=r"delta = 0\.01: with 1797 rows it must be below"):
        said(sets[0])


def test_noise_on_labels_has_its_epsilon() -> None:
    ((text, weak),) = said("server.privacy.labels={deviation: 1}")
    assert numbers(text) == [2.83] and "a training label" in text and not weak
    for settings in ({"deviation": 0.3}, {"epsilon": 3}):
        made = LabelPrivacyConfig(**settings)
        drawn = NoisyLabels.draw(torch.zeros(3, dtype=torch.int64), 2, made, 0)
        assert label_noise(made, 2).epsilon == drawn.epsilon
    assert said("server.privacy.labels={deviation: 0.1}")[1][1]
    ((text, weak),) = said("server.privacy.labels={mechanism: subset, epsilon: 1.5}")
    assert numbers(text) == [1.5] and "a training label" in text and not weak


@pytest.mark.parametrize("arrivals", ["true", "false"])
def test_noise_on_answers_has_the_epsilon_that_the_run_spends(arrivals: str) -> None:
    sets = (
        "server.privacy.answers={clip: .001, head_clip: .001, noise_multiplier: 20, delta: 1.0e-5, seeded: true}",
        f"federation.protocol.arrivals={arrivals}", "federation.epochs=3", "server.optimiser.lr=0.0001",
        "every_party.optimiser.lr=0.0001",
    )  # fmt: skip
    ((text, weak),) = said(*sets, protocol="vafl")
    outcome = federate(config({"name": "vafl", "embedding": 8}, *sets))
    assert outcome.server.releases is not None
    assert numbers(text) == [round(outcome.server.releases.epsilon, 2)] and weak  # seeded
    with pytest.raises(ConfigError, match=r"server\.privacy\.answers\.delta = 0\.1"):
        said(*sets, "server.privacy.answers.delta=0.1", protocol="vafl")


def test_the_example_of_answers_states_its_epsilon() -> None:
    (line,) = [
        line for line in (ROOT / "docs/private_labels.md").read_text().splitlines() if "privacy: {answers:" in line
    ]
    settings = yaml.safe_load(line)["privacy"]["answers"]
    epochs, parties, stated = re.search(r"# (\d+) epochs, (\d+) parties: epsilon ([\d.]+)$", line).groups()  # type: ignore[union-attr]
    releases = int(epochs) * (int(parties) + 1)
    found = exact_epsilon([(settings["noise_multiplier"], releases)], settings["delta"], replace=True)
    assert float(stated) == pytest.approx(found, abs=0.006)


def test_the_hint_for_protected_rows_protects_them() -> None:
    """Of a federation of the protocol that needs it: its noise follows from epsilon."""
    with pytest.raises(ConfigError) as refused:
        config({"name": "vfl_afe", "embedding": 8}, "federation.privacy=")
    assert f"give privacy: {PROPOSED}" in refused.value.hint and "epsilon 8 of a row" in refused.value.hint
    (first, *_) = said(f"federation.privacy={PROPOSED}", protocol="vfl_afe")
    assert 7.5 < numbers(first[0])[1] <= 8 < numbers(first[0])[0] and not first[1]


def test_no_hint_proposes_noise_without_its_epsilon() -> None:
    """Sections and numbers for the noise in texts of the product; where one is, an epsilon is in the same text."""
    proposed = re.compile(r"(noise_multiplier|sigma|deviation)\W{1,3}\.?\d")
    texts = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    texts += (ROOT / "colonnade/cli").rglob("*.txt")
    wrong = []
    for path in texts:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if proposed.search(line) and "epsilon" not in line and ("hint" in line or path.suffix == ".txt"):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong


def experiments() -> Iterator[Path]:
    """Federations of experiments/ with noise, other than for a table of a paper with settings of its own."""
    for path in sorted((ROOT / "experiments").rglob("*.yaml")):
        tree = yaml.load(path.read_text(), yaml.CSafeLoader)  # at collection, by every worker
        if not isinstance(tree, dict) or "federation" not in tree:
            continue
        if tree["federation"].get("privacy") or (tree.get("server") or {}).get("privacy"):
            yield path


@pytest.mark.parametrize(
    "path", list(experiments()), ids=lambda path: path.relative_to(ROOT / "experiments").as_posix()
)
def test_an_experiment_with_noise_states_its_epsilon(path: Path) -> None:
    """In its settings, or in a comment that is what the accountant says."""
    cfg, text = load(path, ()), path.read_text()
    agreed = cfg.federation.privacy
    if agreed is not None and agreed.epsilon is not None:
        return
    assert cfg.server is not None
    labels: Any = cfg.server.labels
    rows, official = ROWS[getattr(labels, "name", None) or labels.folder]
    lines = planned(cfg.federation, cfg.server, Schedule(cfg.federation, rows, official))
    found = numbers(lines[0].text)[0]
    comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
    assert any(math.isclose(number, found, rel_tol=2e-3) for number in numbers(comments)), (found, comments)


def test_a_new_federation_proposes_what_it_says(tmp_path: Path) -> None:
    code, printed = colonnade("new", "federation", tmp_path / "start", "--parties", "a,b,c,d,e")
    assert code == 0, printed
    file = tmp_path / "start" / "federation.yaml"
    text = file.read_text()
    file.write_text(text.replace("  # privacy: ", "  privacy: "))
    assert file.read_text() != text
    code, printed = colonnade("check", file)
    printed = " ".join(printed.split())
    assert code == 0, printed
    person, party, *_ = numbers(printed)
    assert 7.5 < party <= 8
    stated = re.search(r"Of a person at all 5\s+# parties it is then ([\d.]+)\. ", text)
    assert stated and float(stated[1]) == pytest.approx(person, abs=0.1)


def test_check_prints_epsilon_of_the_common_rows(tmp_path: Path, monkeypatch, capfd) -> None:
    file = write_file(tmp_path, federation={"privacy": {"clip": 1, "noise_multiplier": 3}})
    code, _ = run(monkeypatch, capfd, "check", file)
    assert code == 0
    code, printed = colonnade("check", file)
    printed = " ".join(printed.split())
    assert "federation.privacy: a person at all" in printed and "protects little" in printed
    tree = yaml.safe_load(file.read_text())
    plan = Schedule(parse(tree).federation, 1797, 0).privacy
    assert plan is not None
    assert numbers(printed)[1] == round(plan.epsilon(plan.releases), 2)
    del tree["federation"]["privacy"]
    file.write_text(yaml.safe_dump(tree))
    assert "privacy: " not in colonnade("check", file)[1]


def test_a_simulation_begins_with_its_epsilon(tmp_path: Path) -> None:
    file = write_file(tmp_path, federation={"privacy": {"clip": 1, "noise_multiplier": 60}, "epochs": 1})
    code, printed = colonnade("simulate", file, "--out", tmp_path / "run")
    assert code == 0, printed
    assert printed.index("federation.privacy: a person at all") < printed.index("test accuracy")


def test_a_budget_that_training_spends_is_said_to_leave_no_prediction() -> None:
    sets = ("federation.privacy={clip: 1, epsilon: 8}",)
    (_, weak), (text, last) = said(*sets)[0], said(*sets)[-1]
    assert not weak and last and "cannot be asked for predictions" in text
    kept = said("federation.privacy={clip: 1, epsilon: 8, predictions: 5}")
    assert "rounds and 5 for predictions" in kept[0][0]
    assert not any("predictions;" in text or "asked" in text for text, _ in kept)


def test_releases_of_a_row_are_explained() -> None:
    sets = ("federation.privacy={mechanism: adaptive, clip: 1, epsilon: 8, delta: 1.0e-5, steps: {clip: 1}}",)
    assert re.search(r"\d+ releases of a row, which is in one batch of an epoch, in \d+ rounds", said(*sets)[0][0])
