"""Sources of other packages: what a configuration, a deal and a wrong package make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.cli.data.deal import DealTerms, deal
from colonnade.common.config.members import Config
from colonnade.common.errors import ColonnadeError, ConfigError, DataError
from colonnade.common.parsing.file import load, parse
from colonnade.simulation.federation import Simulation
from tests.support.packages import Packages

SOURCE = """
from typing import Literal
import torch
from colonnade.common.config.data.sources import ColumnsConfig, LabelsConfig
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.outside import Matrix
from colonnade.common.errors import DataError

class Data(ColumnsConfig):
    source: Literal["bag"]
    rows: int = 60

    def open(self, base):
        values = torch.rand(self.rows, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        return Matrix(values, tuple("abcdef"))

class Labels(LabelsConfig):
    source: Literal["bag"]
    rows: int = 60

    def read(self, base):
        return LabelColumn(torch.arange(self.rows) % 2, ("no", "yes"))
"""


def install(packages: Packages, source: str = SOURCE, version: str = "1.0") -> None:
    packages.install("colonnade-bag", "sources", {"bag": "bag_source"}, source, version)


def tree(data: Any = None, labels: Any = None, **federation: Any) -> dict[str, Any]:
    return {
        "federation": {
            "id": "bags", "protocol": {"name": "split", "embedding": 4}, "parties": ["bank", "clinic"],
            "classes": 2, "epochs": 1, "batch": 16, **federation,
        },
        "server": {"labels": labels or {"source": "bag"}},
        "every_party": {"data": data or {"source": "bag", "split": "columns"}},
    }  # fmt: skip


def run(config: Config) -> None:
    Simulation(config).run()


def test_keys_are_checked_by_the_packages_own_class(packages: Packages) -> None:
    install(packages)
    assert parse(tree({"source": "bag", "rows": 7})).parties["bank"].data.rows == 7  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"source": "bgag"}, r"^every_party.data.source = 'bgag': expected .* or bag \(did you mean 'bag'\?\)"),
        ({"source": "bag", "rws": 3}, r"^every_party.data.rws: unknown key \(did you mean 'rows'\?\)"),
        ({"source": "bag", "rows": "many"}, r"^every_party.data.rows = 'many': expected a whole number"),
        ({"source": "bag", "split": "colums"}, r"^every_party.data.split"),
        ({"source": ["bag"]}, r"^every_party.data.source"),
    ],
)  # fmt: skip
def test_wrong_input_names_the_key(packages: Packages, data: dict[str, Any], said: str) -> None:
    install(packages)
    with pytest.raises(ConfigError, match=said):
        parse(tree(data))


def test_a_source_that_is_not_installed_is_refused_with_the_remedy(packages: Packages) -> None:
    with pytest.raises(ConfigError, match=r"labels.source = 'bag': expected sklearn, idx") as refused:
        parse(tree({"source": "sklearn", "name": "digits"}))
    assert "install the one that registers it (colonnade.sources)" in refused.value.hint


def test_a_party_overrides_the_template_with_keys_of_another_source(packages: Packages) -> None:
    install(packages)
    made = tree({"source": "bag", "rows": 9, "scale": "none"})
    made["parties"] = {"bank": {"data": {"source": "sklearn", "name": "digits"}}, "clinic": {"data": {"rows": 8}}}
    config = parse(made)
    assert config.parties["bank"].data.source == "sklearn" and config.parties["bank"].data.scale == "none"
    assert config.parties["clinic"].data.model_dump()["rows"] == 8


def test_check_and_deal_read_it_and_members_need_no_package(
    packages: Packages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages)
    file = tmp_path / "bags.yaml"
    file.write_text(yaml.safe_dump(tree()))
    check(file, ())
    assert "60 rows, encoded as 3 numbers each" in capsys.readouterr().out
    deal(file, (), tmp_path / "dealt", DealTerms("localhost:7400", 30))
    own = yaml.safe_load((tmp_path / "dealt" / "bank" / "config.yaml").read_text())["parties"]["bank"]
    assert own["data"]["source"] == "safetensors"
    assert load(tmp_path / "dealt" / "server" / "config.yaml").server is not None


OF = r"the source bag of colonnade-bag 1\.0"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("import torch", "import nowhere_at_all", f"^{OF} cannot be imported: ModuleNotFoundError"),
        ("class Labels", "class Others", f"^{OF}: it has no labels, since bag_source has no Labels"),
        ("class Data(ColumnsConfig)", "class Data", f"^{OF}: Data is not derived from ColumnsConfig"),
        ('Literal["bag"]\n    rows: int = 60\n\n    def open', "str\n    rows: int = 60\n\n    def open",
         rf"^{OF}: the field `source` of Data is not Literal\['bag'\]"),
    ],
    ids=["import", "no labels", "wrong class", "no literal"],
)  # fmt: skip
def test_a_package_that_is_no_source_is_refused_with_its_name(
    packages: Packages, before: str, after: str, said: str
) -> None:
    assert before in SOURCE
    install(packages, SOURCE.replace(before, after))
    with pytest.raises(ConfigError, match=said):
        parse(tree())
    assert parse(tree({"source": "sklearn", "name": "wine"}, {"source": "sklearn", "name": "wine"}, classes=3))


@pytest.mark.parametrize(
    ("before", "after", "said", "kind"),
    [
        ("return Matrix(values", "values = 1 / 0; return Matrix(values", f"{OF} failed: ZeroDivisionError", DataError),
        ("return Matrix(values", "raise DataError('no bag here'); return Matrix(values", "no bag here", DataError),
        ("dtype=torch.float64", "dtype=torch.float32", f"{OF}: its columns are torch.float32", ConfigError),
        ('tuple("abcdef"))', 'tuple("abcdef"), keys=("k",))', f"{OF}: it has 1 keys for 60 rows", ConfigError),
        ("return Matrix(values", "values[3, :] = float('nan'); return Matrix(values", f"{OF}: a value is missing",
         ConfigError),
        ('tuple("abcdef"))', 'tuple("abcdef"), keys=range(60))', f"{OF}: it has 60 keys for 60 rows, expected a text",
         ConfigError),
        ('"yes"))', '"yes"), official_test=90)', f"{OF}: official_test = 90: expected a number of rows", ConfigError),
        ('"yes"))', '"no"))', f"{OF}: its classes' names are not all text, or not all different", ConfigError),
        ('"yes"))', '"yes"), weights=torch.full((60,), torch.nan).double())', f"{OF}: its weights are no", ConfigError),
        ("return Matrix(values, tuple", "return 3, (", f"{OF} failed: AttributeError", DataError),
        ("% 2, (", "% 3, (", f"{OF}: its class numbers run from 0 to 2, and it names 2 classes", ConfigError),
        ("% 2, (", "% 2.0, (", f"{OF}: its labels are torch.float32", ConfigError),
        ('return LabelColumn(torch.arange(self.rows) % 2, ("no", "yes"))', "return [0, 1]",
         f"{OF}: its labels are list", ConfigError),
    ],
)  # fmt: skip
def test_a_source_that_fails_ends_the_run_with_its_name(
    packages: Packages, before: str, after: str, said: str, kind: type[ColonnadeError]
) -> None:
    assert before in SOURCE
    install(packages, SOURCE.replace(before, after))
    config = parse(tree())
    with pytest.raises(kind, match=said):
        run(config)


def test_a_regression_needs_numbers(packages: Packages) -> None:
    install(packages)
    made = tree(task="regression")
    del made["federation"]["classes"]
    with pytest.raises(ConfigError, match=r"server.labels.source = 'bag' has classes and no numbers"):
        run(parse(made))
    numbers = "    def read_numbers(self, base):\n        return LabelColumn(torch.rand(60, 1).double(), ())\n"
    install(packages, SOURCE + "\n" + numbers, version="2.0")
    run(parse(made))


def test_nothing_is_imported_before_it_is_named(packages: Packages) -> None:
    install(packages, "raise SystemExit('imported')")
    digits = {"source": "sklearn", "name": "digits"}
    assert parse(tree(digits, digits, classes=10))
    with pytest.raises(ConfigError, match=r"unknown key"):
        parse(tree({**digits, "nme": "x"}, digits, classes=10))  # messages list names alone
    with pytest.raises(ConfigError, match=f"^{OF} cannot be imported: SystemExit: imported"):
        parse(tree())
