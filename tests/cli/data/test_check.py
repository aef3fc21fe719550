"""`colonnade check`: codes, noise, sums under encryption, and model files of which nothing is run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import yaml

from colonnade.cli.checks.check import check
from colonnade.cli.checks.privacy import drowned, noise_over_values
from colonnade.client.aggregation.coded import CodedParty, margin
from colonnade.common.config.models import OwnConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.encryption.parameters import solvable
from colonnade.common.errors import ConfigError, DataError, InputError
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from colonnade.testing import digits
from tests.support.federation import config, tree
from tests.support.rooms import ROOT
from tests.support.tables import table_tree, write_tables

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


ROW = "{mechanism: adaptive, clip: 1, epsilon: EPSILON, delta: 1.0e-4, steps: {clip: 1}}"
WHOLE = "{mechanism: gaussian, clip: 1, epsilon: EPSILON, delta: 1.0e-4}"


def said(privacy: str, epsilon: float) -> str:
    cfg = config({"name": "split", "embedding": 16}, f"federation.privacy={privacy.replace('EPSILON', str(epsilon))}")
    return drowned(cfg.federation, Schedule(cfg.federation, 1797, 0))


@pytest.mark.parametrize(("privacy", "what"), [(ROW, "a row's embedding"), (WHOLE, "a message")])
def test_epsilon_8_on_a_small_table_is_warned_of(privacy: str, what: str) -> None:
    text = said(privacy, 8)
    assert f"times as large as {what} may be" in text and "at chance" in text


def test_little_noise_and_none_are_not_warned_of() -> None:
    assert said(ROW, 512) == ""
    plain = config({"name": "split", "embedding": 16}).federation
    assert drowned(plain, Schedule(plain, 1797, 0)) == ""


@pytest.mark.parametrize("privacy", [ROW, WHOLE])
def test_the_ratio_is_that_of_what_is_sent(privacy: str) -> None:
    """With much noise, messages are noise alone: their norm in units of `clip` is the ratio."""
    sets = (f"federation.privacy={privacy.replace('EPSILON', '0.5')}", "federation.epochs=1")
    cfg = config({"name": "split", "embedding": 16}, *sets)
    simulation = Simulation(cfg, Path(), record=True)
    outcome = simulation.run()
    plan = outcome.server.schedule.privacy
    assert plan is not None
    sent = next(message.h for sender, _, message in outcome.messages if sender == "party1")
    per_message = float(torch.linalg.vector_norm(sent))
    per_row = per_message / math.sqrt(len(sent))
    expected = noise_over_values(plan, len(sent), 16)
    assert (per_row if plan.strict == "row" else per_message) == pytest.approx(expected, rel=0.15)


DEMO = ROOT / "experiments/secureboost/demo.yaml"


def test_it_counts_bins_and_says_how_strongly_sums_are_encrypted(capsys: pytest.CaptureFixture[str]) -> None:
    check(DEMO, ())
    said = capsys.readouterr().out
    assert "party1: 569 rows, encoded as 10 numbers each; 194 bins of 10 columns" in said
    assert "encryption: 192 bits of security" in said and "noise is 2^16 times what it hides" in said
    assert "gradients of 21 bits" in said
    assert "the server learns sums of up to 160 vectors over each bin, of 409 training rows" in said  # 20 trees of 8


def test_a_range_that_is_too_large_is_refused_with_the_largest_precision() -> None:
    with pytest.raises(InputError, match="numbers of 40 bits could leave the range") as refused:
        check(DEMO, ("federation.protocol.precision=40",))
    assert refused.value.hint == "take at most 21 bits"


def test_nothing_is_said_of_an_encryption_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    check(DEMO, ("federation.protocol.gradients=clear", "federation.rounds=5", "federation.protocol.depth=1"))
    said = capsys.readouterr().out
    assert "encryption:" not in said and "the server learns sums" not in said


def test_of_sums_that_go_back_it_says_whose_labels_could_be_solved_for(capsys: pytest.CaptureFixture[str]) -> None:
    check(ROOT / "experiments/additive/demo.yaml", ())
    said = capsys.readouterr().out
    assert "bins for 409 training rows: party1 194, party2 194, party3 195, all together 583; from sums" in said
    assert "encryption: 192 bits" in said and "the server learns sums" not in said


def test_bins_that_are_more_than_a_tenth_of_the_rows_are_named() -> None:
    assert not solvable({"bank": 50, "shop": 50}, 1000)
    said = solvable({"bank": 101, "shop": 50}, 1000)
    assert said.startswith("bins for 1000 training rows: bank 101, all together 151; from sums")
    assert not solvable({"bank": 100}, 1000)


@pytest.mark.parametrize("protocol", ["additive", "scorecard"])
def test_of_sums_that_go_back_it_says_what_parties_learn(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(ROOT / f"experiments/{protocol}/demo.yaml", ())
    said = capsys.readouterr().out
    assert "each party learns how many training rows of each class" in said and "the server learns sums" not in said
    assert "after 8 answers a hint" in said and f"docs/protocols/{protocol}.md" in said


TOWER = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
from torch import nn

class Tower(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 16)
    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    tree = table_tree(align="psi")
    tree["parties"]["party1"]["model"] = {"file": "./tower.py:Tower"}
    tree["server"]["head"] = {"file": "./tower.py:Tower"}
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(tree))
    (tmp_path / "tower.py").write_text(TOWER)
    return tmp_path / "federation.yaml"


def test_the_code_of_a_model_is_not_run_and_the_output_says_so(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(file, ())
    said = capfd.readouterr().out
    assert not file.with_name("ran").exists()
    assert "parties.party1.model: ./tower.py:Tower is there and was not run; --run-models runs it" in said
    assert "server.head: ./tower.py:Tower is there and was not run" in said


def test_it_is_run_on_demand(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"parties.party1.model makes 16 numbers of a row") as refused:
        check(file, ("federation.protocol.embedding=3",), run_models=True)
    assert file.with_name("ran").exists() and refused.value.hint


COUNTER = """
from torch import nn

class Counter(nn.Module):
    def __init__(self, shape, outputs=16):
        super().__init__()
        self.layer, self.calls = nn.Linear(shape if isinstance(shape, int) else shape[0], outputs), 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) / self.calls
"""


def test_heads_and_the_servers_own_columns_are_tested_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counter.py").write_text(COUNTER)
    made, own = (
        tree({"name": "vfedmh", "embedding": 16, "aggregate": "clear"}, parties=2),
        {"file": "./counter.py:Counter"},
    )
    made["every_party"] |= {"model": own, "head": own}
    made["server"]["head"] = made["server"]["active"]["model"] = own
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(made))
    check(tmp_path / "run.yaml", (), run_models=True)
    said = " ".join(capfd.readouterr().out.split())
    for owner in ("server.active.model", "server.head", "parties.party1.model", "parties.party1.head"):
        assert f"{owner}: its outputs depend on more than its `state_dict`, in evaluation mode" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file .*tower.py"),
        ("class Tower(:\n", ".*tower.py is not Python"),
        ("class Tour: pass\n", "has no class or function 'Tower' .did you mean 'Tour'"),
        ("\0", "is not Python"),
        ("(" * 5000, "is not Python"),
    ],
)
def test_what_can_be_found_without_running_it(file: Path, text: str | None, said: str) -> None:
    if text is None:
        file.with_name("tower.py").unlink()
    else:
        file.with_name("tower.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        check(file, ())


@pytest.mark.parametrize(
    "text",
    [
        "from towers import Tower", "from towers import Wide as Tower", "import a as Tower", "Tower = make(3)",
        "Tower: object = 1", "def Tower(): pass", "if True:\n    class Tower: pass",
        "try:\n    import x\nexcept ImportError:\n    Tower = None", "a, (Tower, b) = f()",
    ],
)  # fmt: skip
def test_ways_to_define_a_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "tower.py").write_text(text)
    OwnConfig(file="./tower.py:Tower").find(tmp_path)
