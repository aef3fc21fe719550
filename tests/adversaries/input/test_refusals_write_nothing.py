"""A command that is refused leaves everything as it was: names, contents and times of change.

Locks are not content. If a member was started before it refuses, logs may have grown by its lines, and ledgers by
the messages that others had sent by then.

Bounds: no cell.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from colonnade.cli import main as command_line
from colonnade.common.crypto.pki.authority import make_federation
from tests.support import household, warm
from tests.support.federation import tree

pytestmark = pytest.mark.processes

LOCKS = (".lock", ".launcher.lock")
COUNTERS = ("session", "pinned.json")  # of sessions, which only grow: one may have begun before the refusal
LOGS = ("server.log", "log.txt", "answers.log", "events.jsonl", "predictions.jsonl", "ledger.jsonl")
GONE_AGAIN = (".", "empty")  # where a run's folder, or its lock, is made and removed again

Snapshot = dict[str, tuple[int, str]]


def snapshot(folder: Path, leave: tuple[str, ...] = LOCKS) -> Snapshot:
    found = {}
    for path in (folder, *folder.rglob("*")):
        if path.name not in leave:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            name = str(path.relative_to(folder))
            found[name] = (0 if name in GONE_AGAIN else path.lstat().st_mtime_ns, content)
    return found


class NoProcesses:
    """Replaces the fork server of `up`, which is not needed to refuse."""

    def __init__(self, *, answers: bool = False) -> None:
        self.codes: dict[str, int] = {}
        self.begun = time.time()

    def start(self, name: str, *_: object, **__: object) -> None:
        raise AssertionError(f"{name} was started")

    def running(self) -> list[str]:
        return []

    def wait(self, _seconds: float) -> None: ...

    def close(self) -> None: ...


def colonnade(monkeypatch: pytest.MonkeyPatch, *argv: object) -> int:
    """`colonnade ARGV` in this process, without starting members."""
    monkeypatch.setattr(sys, "argv", ["colonnade", *map(str, argv)])
    for module in ("predictions", "processes"):
        monkeypatch.setattr(f"colonnade.launcher.{module}.Processes", NoProcesses)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = os.umask(0o022)
    try:
        command_line.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    finally:
        os.umask(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its configuration, ids, keys, dealt folders, and a folder that is no run."""
    folder = tmp_path_factory.mktemp("made")
    content = tree({"name": "split", "embedding": 8}, parties=2, epochs=1, checkpoint={"rounds": 3})
    content["federation"]["timeouts"] = {"away": 20, "answer": 20}
    (folder / "run.yaml").write_text(yaml.safe_dump(content))
    code, said = household.colonnade("up", folder / "run.yaml", "--out", folder / "run")
    assert code == 0, said
    (folder / "config.yaml").write_text((folder / "run.yaml").read_text())
    (folder / "ids.csv").write_text("id\n1\n2\n")
    (folder / "torn.csv").write_text("")
    (folder / "empty").mkdir()
    (folder / "file").write_text("")
    broken = tree({"name": "split"}, parties=2)
    broken["parties"] = {"party2": {"data": {"source": "csv", "path": "gone.csv"}}}
    (folder / "broken.yaml").write_text(yaml.safe_dump(broken))
    pins = make_federation(folder / "keys", ["party1", "party2"])
    (folder / "pins.json").write_text(json.dumps(pins))
    (folder / "unfinished").mkdir()
    shutil.copy(folder / "run" / "events.jsonl", folder / "unfinished")
    (folder / "unfinished" / "config.yaml").write_text((folder / "run" / "config.yaml").read_text())
    shutil.copytree(folder / "run", folder / "headless")
    shutil.rmtree(folder / "headless" / "checkpoints")
    (folder / "tokens").write_text("no token at all\n")
    (folder / "tokens").chmod(0o600)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = Path(shutil.copytree(made, tmp_path / "place"))
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def untouched(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`made` itself, which no test changes that passes."""
    monkeypatch.chdir(made)
    return made


@pytest.fixture(scope="module")
def before(made: Path) -> Snapshot:
    """What `made` holds before all of these commands."""
    return snapshot(made)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


REFUSED = [
    "up nowhere.yaml",
    "up run.yaml --set federation.batch=0",
    "up run.yaml --out run",
    "up run.yaml --out file",
    "up run.yaml --resume run",
    "up run.yaml --predict gone.csv --out new",
    "up run.yaml --predict torn.csv --out new",
    "up --resume empty",
    "up --resume gone",
    "up --resume run --out new",
    "up --resume run --set federation.batch=128",
    "up --resume run --set federation.seed=7",
    "up --resume run --set federation.protocol.embedding=9",
    "up --resume run --set federation.nothing=1",
    "up --resume run --set server.nothing=1",
    "up --resume run --set federation.epochs=0 --set federation.rounds=0",
    "up --in run",
    "up config.yaml --out .",
    "server nowhere.yaml --out new",
    "server run.yaml --out new",
    "server run.yaml --insecure --out run",
    "server run.yaml --insecure --out new --set server.listen=127.0.0.1:TAKEN",
    "server run.yaml --insecure --out empty --set server.listen=127.0.0.1:TAKEN",
    "server run.yaml --insecure --out new --set server.listen=0.0.0.0:0",
    "server run.yaml --insecure --set server.listen=127.0.0.1:TAKEN",
    "server run.yaml --insecure --resume run --set federation.batch=128",
    "server run.yaml --insecure --in run --set federation.batch=128",
    "server run.yaml --insecure --in run --set server.listen=127.0.0.1:TAKEN",
    "server run.yaml --insecure --in run --set server.privacy.labels.deviation=1",
    "server run.yaml --insecure --in run --out new",
    "server run.yaml --insecure --resume empty",
    "server run.yaml --insecure --resume run --set server.labels.name=wine",
    "client nowhere.yaml --out new",
    "client run.yaml --out new",
    "client run.yaml --party nobody --out new",
    "client run.yaml --party party1 --out new",
    "client broken.yaml --party party2 --insecure --out new",
    "client run.yaml --party party1 --insecure --out new",
    "client run.yaml --party party1 --insecure --resume run/parties/party1 --set federation.batch=128",
    "client run.yaml --party party1 --insecure --in run/parties/party1 --set federation.batch=128",
    "client run.yaml --party party1 --insecure --in run/parties/party2",
    "answer run.yaml --party party1 --insecure --in empty",
    "answer run.yaml --party party1 --insecure --in run/parties/party1 --set federation.batch=128",
    "predict empty --ids ids.csv --out out.csv",
    "predict gone --ids ids.csv --out out.csv",
    "predict headless --ids ids.csv --out out.csv",
    "predict run --ids gone.csv --out out.csv",
    "predict run --ids torn.csv --out out.csv",
    "predict run --ids ids.csv --key nothing --out out.csv",
    "predict run --ids ids.csv --out ids.csv",
    "predict run --ids ids.csv --out empty",
    "predict run --ids ids.csv --out nowhere/out.csv",
    "predict run --ids ids.csv --out out.csv --own",
    "predict run --ids ids.csv --out out.csv --file broken.yaml",
    "predict run --ids ids.csv --out out.csv --file nowhere.yaml",
    "serve empty",
    "serve headless",
    "serve run --http= --grpc=",
    "serve run --http 0.0.0.0:0",
    "serve run --http 127.0.0.1:TAKEN",
    "serve run --http 127.0.0.1:0 --grpc 127.0.0.1:TAKEN",
    "serve run --certificate gone.pem --key gone.pem",
    "serve run --certificate file",
    "serve run --tokens tokens",
    "serve run --tokens nowhere/tokens",
    "report empty",
    "report gone",
    "report run run",
    "report run empty",
    "report run --out empty",
    "report run --out file/page.html",
    "report run empty --follow",
    "explain empty",
    "explain unfinished",
    "explain headless",
    "explain run --sigma 0",
    "explain run --keep most",
    "explain run --keep top:9",
    "explain run --out file",
    "card empty",
    "card unfinished",
    "card run --out file/card.md",
    "card run --out card.txt",
    "scorecard empty",
    "bins run",
    "bins run/parties/party1",
    "bins run/parties/party1 --out file/page.html",
    "scorecard run --out file/page.html",
    "export run --party nobody",
    "export empty --party party1",
    "export run --party party1 --file broken.yaml",
    "export run --party party1 --out file",
    "attack run --kind nothing",
    "attack run --kind labels",
    "attack run --kind labels --party nobody",
    "attack empty --kind labels",
    "attack run --kind membership --shadows 0",
    "deal nowhere.yaml --out new",
    "deal broken.yaml --out new",
    "deal run.yaml --out new --connect nowhere",
    "deal run.yaml --out new --owner nobody",
    "deal run.yaml --out file",
    "deal run.yaml --out new --set federation.align=psi",
    "certs all keys --parties a,b",
    "certs all new --parties server,b",
    "certs all new --parties a,a",
    "certs request party1 keys/party1",
    "certs request UPPER new",
    "certs ca keys/ca",
    "certs renew empty",
    "certs sign gone.csr --ca keys/ca --out new.pem",
    "certs sign file --ca keys/ca --out new.pem",
    "certs sign file --ca empty --out new.pem",
    "certs show file",
    "certs revoke gone.pem --list new.json --reason lost",
    "certs revoke sha256:12 --list new.json --reason lost",
    "certs revoke keys/party1/cert.pem --list file --reason lost",
    "tables adult --out new --overlap 7",
    "tables credit --out new --parties 0",
    "datasets fetch nothing --into new",
    "datasets fetch digits --into new",
    "simulate nowhere.yaml",
    "simulate broken.yaml --out new",
    "simulate broken.yaml",
    "simulate run.yaml --out run",
    "simulate run.yaml --set federation.batch=0",
    "simulate run.yaml --chaos nobody:delay=1s",
    "check broken.yaml",
    "check nowhere.yaml",
    "ledger empty",
    "ledger gone --verify",
    "reproduce nothing --out new",
    "reproduce vimadmm/nothing --out new",
    "compare nothing --out new",
    "show nothing",
]


@pytest.mark.parametrize("words", REFUSED)
def test_a_refused_command_has_written_nothing(
    words: str,
    untouched: Path,
    before: Snapshot,
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if words.startswith("client run.yaml --party party1 --insecure --out new"):
        words += " --set federation.timeouts.away=1 --set parties.party1.connect=127.0.0.1:1"
    code = colonnade(monkeypatch, *words.replace("TAKEN", str(taken)).split())
    said = "".join(capfd.readouterr())
    assert code not in (0, 1), said
    assert "Traceback" not in said
    assert snapshot(untouched) == before, said


def test_a_run_with_a_changed_table_keeps_its_model_configuration_and_summary(place: Path) -> None:
    """A party refuses after all were started: only lines in logs remain."""
    config = yaml.safe_load((place / "run" / "config.yaml").read_text())
    assert config["federation"]["epochs"] == 1
    (place / "run" / "parties" / "party2" / "encoder.json").write_text("{}")
    before = snapshot(place, (*LOCKS, *LOGS, *COUNTERS))
    times = {name for name, (_, content) in before.items() if not content}  # a folder's, in which a log begins
    words = (*warm.COLONNADE, "up", "--resume", "run", "--set", "federation.epochs=2")
    process = warm.run(
        words, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    )
    assert process.returncode == 2 and "encoder.json is torn" in process.stdout + process.stderr
    assert "completed" not in process.stdout
    after = snapshot(place, (*LOCKS, *LOGS, *COUNTERS))
    assert {k: v for k, v in after.items() if k not in times} == {k: v for k, v in before.items() if k not in times}
    assert json.loads((place / "run" / "summary.json").read_text())["status"] == "completed"
