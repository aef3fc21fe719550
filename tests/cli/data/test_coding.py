"""`colonnade check` of a coded federation: the table, the margins, and refusals before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.client.aggregation.coded import CodedParty, margin
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from colonnade.testing import digits

PROTOCOL = {"name": "fedvs", "embedding": 4, "segments": 2}


def write(folder: Path, *only: str, **federation: object) -> Path:
    tree = digits(PROTOCOL, **{"parties": 7, "epochs": 0, "rounds": 1, **federation})
    tree["every_party"]["model"] = {"name": "polynomial", "layers": 2}
    tree["every_party"]["data"] = {**tree["every_party"]["data"], "scale": "unit"}
    if only:
        tree["parties"] = dict.fromkeys(only, tree.pop("every_party"))
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def test_it_has_every_k_and_marks_the_chosen_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(write(tmp_path), ())
    cells = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = [row[:4] for row in cells if len(row) > 4 and row[0].strip("*").isdecimal()]
    assert found == [["1", "3", "4", "256"], ["*2", "5", "2", "256"], ["3", "7", "0", "255"]]


def test_the_margin_is_that_of_the_first_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, float] = {}
    refuse = CodedParty.refuse_if_wrapping

    def watch(self: CodedParty, weights: object) -> None:
        parties = len(self._ctx.federation.names)
        seen.setdefault(self._ctx.name, margin(self._code.field, self._largest, weights, parties))
        refuse(self, weights)

    monkeypatch.setattr(CodedParty, "refuse_if_wrapping", watch)
    file = write(tmp_path, rows={"validation": 100, "test": 300})
    Simulation(load(file, ())).run()
    check(file, ())
    said = capsys.readouterr().out
    assert len(seen) == 7
    for party, times in seen.items():
        line = next(line for line in said.splitlines() if line.startswith(party))
        assert line.endswith(f"columns with powers and bias, margin {times:.3g}")


def test_it_refuses_sums_that_could_wrap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"party\d: its embedding could leave its part of the field") as refused:
        check(write(tmp_path, protocol={**PROTOCOL, "prime": 1048573}), ())
    assert "lower federation.protocol.data_bits or weight_bits" in refused.value.hint
    assert "party3: margin 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sets", "error", "said"),
    [
        (("every_party.model={name: mlp}",), ConfigError, "parties.party1.model: fedvs computes on shares"),
        (("federation.protocol.columns=12",), ConfigError, "party1 has 21 columns with powers and bias"),
        (("federation.protocol.prime=101",), DataError, "party1: the data are not all finite, or with 6 bits leave"),
        (
            ("federation.protocol.weight_bits=24", "federation.protocol.prime=1048573"),
            DataError,
            "the weights are not all finite, or with 24 bits leave",
        ),
        (
            ("federation.rows={validation: 0, test: 1795}", "federation.batch=2", "federation.protocol.segments=3"),
            ConfigError,
            "federation.protocol.segments = 3: there are 2 training rows",
        ),
    ],
)
def test_it_refuses_the_same_as_a_run(sets: tuple[str, ...], error: type[Exception], said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        check(write(tmp_path), sets)


def test_a_party_by_itself_has_its_margin_and_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(write(tmp_path, "party1"), ())
    said = " ".join(capsys.readouterr().out.split())
    assert "party1: 1797 rows, encoded as 10 numbers each; 21 columns with powers and bias, margin" in said
    assert "needs every party's columns: 6 of them have no section here" in said and "data up" not in said
