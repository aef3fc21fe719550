"""`colonnade card`: the contents of a run's folder as a model card, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from colonnade.cli.read.commands import card
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.reports.records.ledgers import KINDS
from tests.cli.read.reports import EVENTS, NAMES, VILE, Page, add_parties, leave, summary
from tests.support.federation import tree


def made(folder: Path) -> str:
    card(folder, None)
    return (folder / "card.md").read_text()


def test_it_states_results_and_visibility(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", summary(metrics={"test_accuracy": 0.921875, "test_auc": 0.98765}))
    said = made(folder)
    assert "# Model card: three" in said and "Accuracy 92.2% on test rows that nobody trained on." in said
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
    assert f"| {KINDS['Embedding']} | 6 | 1.2 kB | 384 | in the clear |" in said and "| Embedding" not in said
    assert "| stopped early | it \\| was &lt;b&gt;time&lt;/b&gt; |" in said


def test_a_run_that_has_not_ended_has_no_card(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", events=EVENTS[:-1])
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="has not ended"):
        card(folder, None)
    assert not (folder / "card.md").exists() and not (folder / "card.yaml").exists()


def test_places_for_people_are_marked_until_they_are_filled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = leave(tmp_path / "run")
    said, template = made(folder), (folder / "card.yaml").read_text()
    assert (
        "| purpose | **to be filled in**: What is it for" in said and "intended_use.purpose" in capsys.readouterr().out
    )
    keys = [f"{section}.{key}" for section, inside in yaml.safe_load(template).items() for key in inside]
    assert said.count("**to be filled in**") == len(keys) > 20
    filled = template.replace("  purpose:", f"  purpose: credit {VILE}").replace(
        "  users:", "  users: [clerks, auditors]"
    )
    (folder / "card.yaml").write_text(filled)
    card(folder, tmp_path / "there" / "mine.md")
    said, page = (tmp_path / "there" / "mine.md").read_text(), Page((tmp_path / "there" / "mine.html").read_text())
    assert (folder / "card.yaml").read_text() == filled
    assert said.count("**to be filled in**") == len(keys) - 2 and "| users | clerks; auditors |" in said
    assert page.cells("purpose")[0][1] == f"credit {VILE}" and ("script", {}) not in page.tags
    assert f"{len(keys) - 2} of {len(keys)} places" in page.words
    named = capsys.readouterr().out.partition("places are empty")[2]
    assert "intended_use.out_of_scope" in named and "intended_use.purpose" not in named


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "intended_use:\n  purpose: x\n  user: y\n",
            r"card\.yaml, line 3: intended_use\.user is no place .* mean 'users'",
        ),
        ("data:\nintended:\n  users: y\n", r"card\.yaml, line 2: intended is no place"),
        ("data:\n  period: {from: 2020}\n", r"card\.yaml, line 2: data\.period: expected a text"),
        ("data: 2020\n", r"card\.yaml, line 1: data\. ?holds no keys"),
        ("data:\n  period: a\n  period: b\n", r"is not YAML: .*'period' is given twice"),
    ],
    ids=["key", "section", "value", "scalar", "twice"],
)
def test_a_wrong_key_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    folder = leave(tmp_path / "run")
    (folder / "card.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        card(folder, None)
    assert (folder / "card.yaml").read_text() == text and not (folder / "card.md").exists()


def test_the_results_of_explain_and_the_map_of_the_act_are_in_it(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run")
    assert "colonnade explain RUN says who matters" in made(folder)
    parties = {"ada": {"drop_missing": 0.01, "interval": [-0.01, 0.02], "told": False},
               "bob": {"drop_missing": 0.3, "interval": [0.2, 0.4], "told": True}}  # fmt: skip
    found = {"said": "bob is worth most.", "measure": "accuracy", "without": "mean", "ranked": ["bob", "ada"],
             "parties": parties, "round": 6}  # fmt: skip
    for other, why in (
        ({"round": 4}, "the model of round 4, and the run's is that of round 6"),
        ({"run": "2"}, "another run"),
    ):
        (folder / "explain.json").write_text(json.dumps(found | other))
        said = made(folder)
        assert f"not measured: explain.json is left out: it is of {why}; colonnade explain RUN makes it anew" in said
        assert "bob is worth most." not in said and "| bob | 0.3000 |" not in said
    (folder / "explain.json").write_text(json.dumps(found))
    said = made(folder)
    assert "| parties | bob is worth most. |" in said
    assert said.index("| bob | 0.3000 | 0.2000 to 0.4000 | yes |") < said.index(
        "| ada | 0.0100 | -0.0100 to 0.0200 | no |"
    )
    headings = [line.removeprefix("## ") for line in said.splitlines() if line.startswith("## ")]
    rows = [line.strip("| ").split(" | ") for line in said.splitlines() if re.match(r"\| \d ", line)]
    assert [row[0][0] for row in rows] == list("123456789")
    assert all(any(title.startswith(place) for title in headings) for row in rows for place in row[2].split(", "))


def test_prevalence_and_dates_are_known_where_the_run_knows_them(tmp_path: Path) -> None:
    details = {"test": {"confusion": [[30, 10], [5, 5]]}}
    folder = leave(tmp_path / "run", summary(protocol="split", parties=["bank"], details=details))
    (tmp_path / "bank.csv").write_text("id,opened,x\na,31.01.2020,1\nb,,2\nc,02.03.2019,4\n")
    bank = {"source": "csv", "id": "id", "path": "bank.csv", "types": {"opened": "date %d.%m.%Y"}, "missing": "mean"}
    config = tree({"name": "split"}) | {"parties": {"bank": {"data": bank}}}
    config.pop("every_party", None)
    config["federation"] |= {"parties": ["bank"], "classes": ["paid", "late"]}
    config["server"] = {"labels": {"source": "csv", "path": "late.csv", "id": "id", "label": "late"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(parse(config).model_dump(mode="json", exclude_none=True)))
    (folder / "launch.json").write_text(json.dumps({"base": str(tmp_path)}))
    said = made(folder)
    assert "| prevalence among test rows | paid 80.0%, late 20.0% |" in said and "| test rows | 50 rows |" in said
    assert "| dates in columns of bank | 2019-03-02 to 2020-01-31 |" in said and "opened" not in said


def test_a_party_is_told_whose_card_it_is(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run")
    add_parties(folder)
    own = folder / "parties" / NAMES[0]
    with pytest.raises(InputError, match="party's own folder, and a model card is of the whole model") as refused:
        card(own, None)
    assert "colonnade ledger" in refused.value.hint and not (own / "card.yaml").exists()
