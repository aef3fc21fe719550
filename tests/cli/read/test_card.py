"""`colonnade card`: the contents of a run's folder as a model card, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from colonnade.cli.read.commands import card
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.reports.records.kinds import KINDS
from tests.cli.read.reports import EVENTS, NAMES, add_parties, leave, summary
from tests.support.federation import tree


def made(folder: Path) -> str:
    card(folder, None)
    return (folder / "card.md").read_text()


def test_it_states_results_and_visibility(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", summary(metrics={"test_accuracy": 0.921875, "test_auc": 0.98765}))
    said = made(folder)
    assert "# Model card: three" in said and "test accuracy 92.19%" in said
    assert "| test AUC | 0.9877 |" in said and "| torch | 9.8.7 |" in said
    for role, what in CONTRACTS["vimadmm"].sees.items():
        assert f"The {role} sees {what}" in said
    assert said.count("its own matter") == 2 * len(NAMES) and said.count("not known here") == len(NAMES)


def test_columns_are_counted_where_the_data_are_here_and_never_named(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", summary(protocol="split", parties=[f"party{n}" for n in range(1, 5)]))
    wine = {"source": "sklearn", "name": "wine", "split": "columns"}
    config = tree({"name": "split"}) | {"every_party": {"data": wine}}
    config["server"] = {"labels": {"source": "sklearn", "name": "wine"}, "class_weights": "balanced"}
    config["federation"]["classes"] = 3
    (folder / "config.yaml").write_text(yaml.safe_dump(parse(config).model_dump(mode="json", exclude_none=True)))
    (folder / "launch.json").write_text(json.dumps({"base": str(tmp_path)}))
    said = made(folder)
    counts = [line.split(" | ")[1] for line in said.splitlines() if line.startswith("| party") and "sklearn" in line]
    assert len(counts) == 4 and sum(map(int, counts)) == 13
    assert "| class weights | balanced |" in said and "alcohol" not in said
    assert "SHA-256 of the configuration" in said and "| seed | 0 " in said


def test_ledgers_are_summed_up_and_markup_is_text(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", summary(stopped="it | was <b>time</b>"))
    add_parties(folder)
    said = made(folder)
    assert f"| Embedding messages | 6, 1.2 kB, 384 rows: in the clear ({KINDS['Embedding']}) |" in said
    assert "| stopped early | it \\| was &lt;b&gt;time&lt;/b&gt; |" in said


def test_a_run_that_has_not_ended_has_no_card(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", events=EVENTS[:-1])
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="has not ended"):
        card(folder, None)
    assert not (folder / "card.md").exists()
