"""Wrong input ends with one clear line, an exit code, no traceback, and nothing half-written."""

from __future__ import annotations

import datetime
import json
import signal
import socket
import sys
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from colonnade.cli import main as command_line
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.certificates import certificate_pem
from colonnade.common.crypto.pki.identity import load_key
from colonnade.testing import digits
from tests.support import warm

ROOT = Path(__file__).parents[3]


def write(folder: Path, *, name: str = "federation.yaml", **sections: dict) -> Path:
    tree = digits({"name": "vimadmm"}, **sections.pop("federation", {}))
    path = folder / name
    tree = {key: value for key, value in {**tree, **sections}.items() if value is not None}
    path.write_text(yaml.safe_dump(tree))
    return path


def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """`colonnade ARGV` in this process: exit code and standard error."""
    monkeypatch.setattr(sys, "argv", ["colonnade", *map(str, argv)])
    monkeypatch.delenv("COLONNADE_DEBUG", raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        command_line.main()
        code: object = 0
    except SystemExit as ended:
        code = ended.code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = capfd.readouterr().err
    assert isinstance(code, int)
    assert "Traceback" not in said
    return code, " ".join(said.split())


def table(path: Path, rows: int, columns: tuple[str, ...] = ("age", "income")) -> Path:
    lines = [",".join(columns)] + [",".join(str(row + at) for at in range(len(columns))) for row in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", ["up", "server", "client", "check"])
def test_a_wrong_path(command: str, monkeypatch, capfd, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run(monkeypatch, capfd, command, "nowhere.yaml")
    assert code == 2 and said.startswith("error: nowhere.yaml: there is no such file")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["check", "client"])
def test_a_wrong_path_of_data(command: str, monkeypatch, capfd, tmp_path: Path) -> None:
    file = write(tmp_path, parties={"party1": {"data": {"source": "csv", "path": "gone.csv"}}}, every_party=None)
    extra = ("--insecure", "--out", tmp_path / "out") if command == "client" else ()
    code, said = run(monkeypatch, capfd, command, file, *extra)
    assert code == 2 and "gone.csv" in said
    assert not (tmp_path / "out").exists()


def test_an_unknown_column(monkeypatch, capfd, tmp_path: Path) -> None:
    table(tmp_path / "bank.csv", 30)
    split = {"kind": "columns", "take": ["age", "incom"]}
    data = {"source": "csv", "path": "bank.csv", "split": split}
    code, said = run(monkeypatch, capfd, "check", write(tmp_path, parties={"party1": {"data": data}}, every_party=None))
    assert code == 2 and "'incom'" in said and "'income'" in said


def test_labels_that_are_missing(monkeypatch, capfd, tmp_path: Path) -> None:
    table(tmp_path / "labels.csv", 30)
    labels = {"source": "csv", "path": "labels.csv", "label": "default"}
    file = write(tmp_path, server={"labels": labels})
    code, said = run(monkeypatch, capfd, "server", file, "--insecure", "--out", tmp_path / "out")
    assert code == 2 and "'default'" in said
    assert not (tmp_path / "out").exists()


def test_parties_with_unequal_row_counts(monkeypatch, capfd, tmp_path: Path) -> None:
    table(tmp_path / "bank.csv", 30)
    file = write(tmp_path, parties={"party1": {"data": {"source": "csv", "path": "bank.csv"}}}, every_party=None)
    code, said = run(monkeypatch, capfd, "check", file)
    assert code == 2 and "party1 has 30 rows, the labels have 1797" in said


@pytest.mark.processes
def test_parties_with_unequal_row_counts_over_the_wire(tmp_path: Path) -> None:
    table(tmp_path / "bank.csv", 30)
    file = write(tmp_path, parties={"party2": {"data": {"source": "csv", "path": str(tmp_path / "bank.csv")}}})
    tree = yaml.safe_load(file.read_text())
    tree["federation"]["parties"] = 2
    tree["every_party"] = {"optimiser": {"lr": 0.1}}
    digits = {"source": "sklearn", "name": "digits"}
    tree["parties"]["party1"] = {"data": digits}
    file.write_text(yaml.safe_dump(tree))
    words = (*warm.COLONNADE, "up", file, "--out", tmp_path / "out")
    ended = warm.run(words, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 3
    first = next(line for line in ended.stderr.splitlines() if line.startswith("error:"))
    assert first == "error: party2: the server refused: 'party2' has 30 rows, the labels have 1797 rows"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("federation.batch=0", "federation.batch = 0"),
        ("federation.batch=5000", "a batch of 5000 rows is more than the 1294 training rows"),
        ("federation.protocol.rho=0", "federation.protocol.rho = 0"),
        ("federation.protocol.rho=-2", "federation.protocol.rho = -2"),
        ("federation.protocol.rhoo=1", "federation.protocol.rhoo: unknown key (did you mean 'rho'?)"),
        ("federation.classes=3", "federation.classes says 3 classes, the labels have 10"),
        ("every_party.device=cuda:7", "device cuda:7"),
        ("nonsense", "--set nonsense: expected KEY=VALUE"),
    ],
)
def test_values_that_are_not_allowed(sets: str, said: str, monkeypatch, capfd, tmp_path: Path) -> None:
    device = "device" in sets
    argv = ("client", write(tmp_path), "--party", "party1", "--insecure") if device else ("check", write(tmp_path))
    code, error = run(monkeypatch, capfd, *argv, "--set", sets, *(("--out", tmp_path / "out") if device else ()))
    assert code in (2, 4) and said in error
    assert not (tmp_path / "out").exists()


SQUARES = (
    "from torch import nn\ndef Tower(shape):\n    return nn.Sequential(nn.Linear(16, 16), nn.Unflatten(1, (4, 4)))\n"
)


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        ("./tower.py:Tower", SQUARES, "the model makes (2, 4, 4) of rows of shape (2, 16), expected (2, width)"),
        ("./tower.py:Tower", "import torhc\n", "tower.py does not import: ModuleNotFoundError: No module"),
        ("./tower.py:Towr", SQUARES, "tower.py has no class or function 'Towr' (did you mean 'Tower'?)"),
        ("lenet", "", "the model 'lenet' takes images, but a row of this party has the shape (16,)"),
        ({"name": "mlp", "embedding": 4}, "", "makes 4 numbers of a row, and the protocol takes 60"),
    ],
)
def test_a_model_that_does_not_fit(model: object, text: str, said: str, monkeypatch, capfd, tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(text)
    file = write(tmp_path, parties={"party2": {"model": model}})
    code, error = run(monkeypatch, capfd, "check", file, "--run-models")
    assert code == 2 and error.startswith("error: parties.party2.model") and said in error


def test_a_port_in_use(monkeypatch, capfd, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sets = ("--set", f"server.listen={address}")
        code, said = run(monkeypatch, capfd, "server", write(tmp_path), "--insecure", *sets, "--out", tmp_path / "out")
    assert code == 4 and f"cannot listen on {address}" in said
    assert not (tmp_path / "out").exists()


def _expire(folder: Path) -> None:
    """Signs the party's certificate again unchanged, but expired."""
    old = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    key = load_key(folder.parent / "ca" / "key.pem")
    now = datetime.datetime.now(datetime.UTC)
    again = x509.CertificateBuilder(
        old.issuer, old.subject, old.public_key(), old.serial_number, now - datetime.timedelta(days=2),
        now - datetime.timedelta(days=1), list(old.extensions),
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(certificate_pem(again.sign(key, hashes.SHA256())))


def _with_identities(tmp_path: Path, **party: object) -> tuple[Path, Path]:
    keys = tmp_path / "keys"
    pins = make_federation(keys, ["party1", "party2", "party3", "party4"])
    federation = {"server": pins.pop("server"), "parties": pins, "timeouts": {"away": 0.5}}
    own = {"data": {"source": "sklearn", "name": "digits"}, "connect": "127.0.0.1:1"} | party
    return keys, write(tmp_path, federation=federation, parties={"party1": own}, every_party=None)


def test_an_expired_certificate(monkeypatch, capfd, tmp_path: Path) -> None:
    keys, file = _with_identities(tmp_path, identity="keys/party1")
    _expire(keys / "party1")
    code, said = run(monkeypatch, capfd, "client", file, "--out", tmp_path / "out")
    assert code == 2 and "party1" in said and "renew" in said
    assert not (tmp_path / "out").exists()


def test_a_configuration_for_one_party_given_to_another(monkeypatch, capfd, tmp_path: Path) -> None:
    _, file = _with_identities(tmp_path, identity="keys/party2")
    code, said = run(monkeypatch, capfd, "client", file, "--out", tmp_path / "out")
    assert code == 2 and "the configuration of 'party1'" in said and "the certificate of 'party2'" in said
    assert not (tmp_path / "out").exists()


def test_check_looks_at_a_partys_keys(monkeypatch, capfd, tmp_path: Path) -> None:
    keys, file = _with_identities(tmp_path, identity="keys/party1")
    assert run(monkeypatch, capfd, "check", file) == (0, "")
    other = tmp_path / "others"
    pinned = yaml.safe_load(file.read_text())["federation"]["parties"]["party1"]
    shown = make_federation(other, ["party1"])["party1"]
    code, said = run(monkeypatch, capfd, "check", file, "--set", "parties.party1.identity=others/party1")
    assert code == 2 and shown[:19] in said and f"the roster pins {pinned[:19]}" in said
    code, said = run(monkeypatch, capfd, "check", file, "--set", "parties.party1.identity=keys/party2")
    assert code == 2 and "the configuration of 'party1'" in said and "the certificate of 'party2'" in said
    (keys / "party1" / "key.pem").chmod(0o644)
    code, said = run(monkeypatch, capfd, "check", file)
    assert code == 2 and "key.pem holds a secret" in said


def test_check_looks_at_the_servers_keys(monkeypatch, capfd, tmp_path: Path) -> None:
    _, file = _with_identities(tmp_path)
    ours = ("--set", "server.identity=keys/server")
    assert run(monkeypatch, capfd, "check", file, *ours) == (0, "")
    code, said = run(monkeypatch, capfd, "check", file, "--set", "server.identity=keys/party1")
    assert code == 2 and "the certificate of 'party1', the server needs its own" in said
    code, said = run(monkeypatch, capfd, "check", file, *ours, "--set", "server.revoked=revoked.json")
    assert code == 2 and "there is no file" in said and "revoked.json" in said
    code, said = run(monkeypatch, capfd, "check", file, *ours, "--set", f"federation.server=sha256:{'0' * 64}")
    assert code == 2 and "and the roster pins sha256:000000000000" in said


def test_a_server_that_never_comes(monkeypatch, capfd, tmp_path: Path) -> None:
    _, file = _with_identities(tmp_path, identity="keys/party1")
    code, said = run(monkeypatch, capfd, "client", file, "--out", tmp_path / "out")
    assert code == 4 and "the server at 127.0.0.1:1 did not come within 0.5 s" in said
    assert not (tmp_path / "out").exists()


def test_parties_that_never_come(monkeypatch, capfd, tmp_path: Path) -> None:
    sets = ("--set", "federation.timeouts.away=0.3")
    code, said = run(monkeypatch, capfd, "server", write(tmp_path), "--insecure", *sets, "--out", tmp_path / "out")
    assert code == 3 and "party1, party2, party3, party4" in said and "did not join within 0.3 s" in said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["status"] == "failed" and "did not join" in summary["error"]


def test_insecure_is_for_loopback_only(monkeypatch, capfd, tmp_path: Path) -> None:
    sets = ("--set", "server.listen=0.0.0.0:0")
    code, said = run(monkeypatch, capfd, "server", write(tmp_path), "--insecure", *sets)
    assert code == 2 and "loopback only" in said


def test_a_roster_without_fingerprints(monkeypatch, capfd, tmp_path: Path) -> None:
    file = write(tmp_path, server={"labels": {"source": "sklearn", "name": "digits"}, "identity": "keys/server"})
    code, said = run(monkeypatch, capfd, "server", file, "--out", tmp_path / "out")
    assert code == 2 and "federation.parties.party1: no certificate fingerprint" in said


def test_a_folder_that_holds_a_run_already(monkeypatch, capfd, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    code, said = run(monkeypatch, capfd, "server", write(tmp_path), "--insecure", "--out", tmp_path)
    assert code == 4 and "holds a run already" in said


def test_an_unknown_protocol_to_show(monkeypatch, capfd) -> None:
    code, said = run(monkeypatch, capfd, "show", "vimadm")
    assert code == 2 and "did you mean 'vimadmm'?" in said


@pytest.mark.slow
def test_debug_shows_where(tmp_path: Path) -> None:
    words = (*warm.COLONNADE, "check", tmp_path / "gone.yaml", "--debug")
    ended = warm.run(words, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 2 and "Traceback" in ended.stderr and "error:" in ended.stderr


@pytest.mark.parametrize(
    "name",
    [
        "split",
        "split_avg",
        "fedbcd",
        "fdml",
        "c_vfl",
        "vafl",
        "zoo_vfl",
        "syn_zoo_vfl",
        "vimadmm",
        "vimadmm_j",
        "fedvs",
        "centralized",
        "linear_admm",
        "agg_vfl",
        "local",
    ],
)
def test_show_prints_the_three_files(name: str, monkeypatch, capfd) -> None:
    monkeypatch.setattr(sys, "argv", ["colonnade", "show", name])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    printed = capfd.readouterr().out
    assert ended.value.code == 0
    places = [printed.index(text) for text in ("CONTRACT = Contract(", "async def serve(", "async def participate(")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report",), "error: colonnade report: missing argument 'RUN...' usage: colonnade report [OPTIONS]"),
        (("report", "run", "--outt", "x"), "error: colonnade report: no such option: --outt"),
        (("repot", "run"), "error: colonnade: no such command 'repot'. Did you mean 'report'"),
        (("tune", "--trials", "many", "f.yaml"), "error: colonnade tune: invalid value for '--trials'"),
        (
            ("compare", "--on"),
            "error: colonnade compare: option '--on' requires an argument `colonnade compare --help`",
        ),
        (("certs", "nope"), "error: colonnade certs: no such command 'nope'"),
    ],
)
def test_wrong_words_are_errors_like_all_others(words: tuple[str, ...], said: str, monkeypatch, capfd) -> None:
    code, found = run(monkeypatch, capfd, *words)
    assert code == 2 and found.startswith(said) and "--help` " in found and "Usage:" not in found


def test_no_words_are_answered_by_the_help(monkeypatch, capfd) -> None:
    assert run(monkeypatch, capfd) == (2, "")
    assert run(monkeypatch, capfd, "--version") == (0, "")
