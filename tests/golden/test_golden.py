"""Three protocols leave what is stored, with the numbers of the build that stored it; whatever is altered is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from colonnade.common.contracts.registry import NAMES
from tests.golden import __main__ as golden
from tests.golden.federations import PROTOCOLS
from tests.golden.runs import WAYS, Runs, build

pytestmark = pytest.mark.slow
CHOSEN = ["split", "fedvs", "vfl_afe"]  # plain, coded and sealed, with noise on every row; predictions of all three
ALTERED = ("split", "simulate")


@pytest.mark.parametrize("protocol", CHOSEN)
def test_over_grpc_and_after_a_kill_it_leaves_what_is_stored(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The members are threads here: `python -m tests.golden` has all protocols, as processes."""
    assert golden.main(["--only", protocol, "--ways", "up", "--threads", "--form"], here=True) == 0, capsys.readouterr()


def test_simulated_they_learn_what_the_build_learnt_that_stored_it(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    form = ["--form"] if build(golden.REVISION.read_text().strip()) is None else []  # of a shallow clone, or none
    if request.config.pluginmanager.hasplugin("tests.support.rounding"):
        form = ["--form"]
    words = ["--only", *CHOSEN, "--ways", "simulate", "aligned", "--threads", *form]
    assert golden.main(words, here=True) == 0, capsys.readouterr()


def test_every_protocol_is_stored_in_every_way() -> None:
    assert sorted(PROTOCOLS) == sorted(NAMES)
    stored = {path.stem: set(json.loads(path.read_text())) for path in golden.RECORDS.glob("*.json")}
    assert stored == {name: set(WAYS) for name in NAMES}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Runs(None, tmp_path_factory.mktemp("golden")) as runs:
        yield runs.begin(*ALTERED).result()


def text(file: str, before: str, after: str) -> Callable[[Path], None]:
    """Replaces bytes of a file wherever they are."""

    def alter(folder: Path) -> None:
        data = (folder / file).read_bytes()
        assert before.encode() in data
        (folder / file).write_bytes(data.replace(before.encode(), after.encode()))

    return alter


def swapped(file: str, one: int, two: int) -> Callable[[Path], None]:
    """Swaps two lines."""

    def alter(run: Path) -> None:
        lines = (run / file).read_text().splitlines(keepends=True)
        lines[one], lines[two] = lines[two], lines[one]
        (run / file).write_text("".join(lines))

    return alter


def other_message(run: Path) -> None:
    """The last bit of the last message."""
    data = (run / CAPTURE).read_bytes()
    (run / CAPTURE).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def other_weight(run: Path) -> None:
    """The last bit of one weight."""
    tensors = load_file(run / WEIGHTS)
    weights = next(value for value in tensors.values() if value.dtype == torch.float32 and value.numel() > 1)
    weights.view(-1)[0] = torch.nextafter(weights.view(-1)[0], torch.tensor(9.0))
    save_file(tensors, run / WEIGHTS)


LEDGER, CAPTURE = "parties/party2/ledger.jsonl", "parties/party2/capture.bin"
WEIGHTS = "checkpoints/round-00000004.safetensors"
FORMS = {
    "a message's kind": (text(CAPTURE, "Gradient", "Gradiant"), "in Gradiant"),
    "a tensor's shape": (text(CAPTURE, "\x12\x02\x32\x04", "\x12\x02\x32\x05"), "[50, 5]"),
    "the order of messages": (swapped(LEDGER, 4, 5), "party2"),
    "a kind in the ledger": (text(LEDGER, '"Evaluation"', '"Evaluated"'), "Evaluated to server"),
    "a shape in the ledger": (text(LEDGER, "50, 4]", "50, 5]"), "[float32, 50, 5]"),
    "a length in the ledger": (text(LEDGER, '"bytes": 800', '"bytes": 801'), "801 bytes"),
    "a mechanism in the ledger": (text(LEDGER, '"none"', '"gaussian"'), "gaussian"),
    "another field in the ledger": (text(LEDGER, '"chain"', '"extra": 1, "chain"'), "extra"),
    "a field less in the ledger": (text(LEDGER, '"epsilon": null, ', ""), "none; "),
    "an event's kind": (text("events.jsonl", '"checkpoint"', '"checkpoints"'), "checkpoints"),
    "an event's field": (text("events.jsonl", '"val_loss"', '"loss"'), "loss"),
    "the order of events": (swapped("events.jsonl", -1, -2), "end"),
    "a key of a record": (text("summary.json", '"epsilon"', '"epsilons"'), "epsilons"),
    "another file": (lambda run: (run / "parties" / "party2" / "more.bin").touch(), "more.bin"),
    "a file less": (lambda run: (run / "parties" / "party2" / "encoder.json").unlink(), "encoder.json"),
}
NUMBERS = {
    "a loss": (text("events.jsonl", '"loss": 2', '"loss": 3'), "run/events.jsonl losses, 1: 2."),
    "a metric": (text("summary.json", '"test_loss": 2', '"test_loss": 3'), "run/summary.json, metrics: "),
    "a bit of a weight": (other_weight, f"run/{WEIGHTS}, "),
    "a bit of a message": (other_message, f"run/{CAPTURE}, "),
}


def found(ran: Path, tmp_path: Path, alter: Callable[[Path], None]) -> str:
    """What is said about a copy of a run after a change."""
    altered = shutil.copytree(ran, tmp_path / "altered")
    assert list(golden.compare(*ALTERED, altered, ran)) == []
    alter(altered / "run")
    return "\n".join(golden.compare(*ALTERED, altered, ran))


@pytest.mark.parametrize("what", FORMS)
def test_another_form_is_found(what: str, ran: Path, tmp_path: Path) -> None:
    alter, said = FORMS[what]
    lines = [line for line in found(ran, tmp_path, alter).splitlines() if line[2:3] in ("+", "-")]
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize("what", NUMBERS)
def test_another_number_is_found(what: str, ran: Path, tmp_path: Path) -> None:
    alter, said = NUMBERS[what]
    lines = found(ran, tmp_path, alter)
    assert f"  {said}" in lines and "by the other build" in lines and "revision.txt" in lines


def test_what_differs_ends_with_1_and_with_words_on_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = shutil.copytree(golden.RECORDS, tmp_path / "records")
    text("split.json", "Embedding", "Embedded")(records)
    monkeypatch.setattr(golden, "RECORDS", records)
    words = ["--only", ALTERED[0], "--ways", "simulate", "--form"]
    assert golden.main(words, here=True) == 1
    said = capsys.readouterr().out
    assert "split simulate differs" in said and "Embedded" in said and "CHANGELOG.md" in said
    assert golden.main([*words, "--write"], here=True) == 0 and golden.main(words, here=True) == 0


def test_a_run_that_fails_differs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(WAYS, "simulate", WAYS["simulate"]._replace(commands=[("simulate", "no.yaml")]))
    assert golden.main(["--only", "split", "--ways", "simulate", "--form"], here=True) == 1
    assert "colonnade simulate no.yaml" in capsys.readouterr().out


def test_another_build_that_is_not_here_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        golden.main(["--against", "no-such-commit"])
    assert "git fetch" in capsys.readouterr().err
