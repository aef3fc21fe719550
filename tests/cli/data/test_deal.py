"""`colonnade deal`: the files of every member, and members that learn from them the same as under `up`."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from colonnade.cli.data.deal import DealTerms, deal, read_owner
from colonnade.cli.main import app
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.tables import CsvData, CsvLabels
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import DataError, InputError
from colonnade.common.parsing.file import load
from tests.cli.run.test_up import events, finish, start, wait_for_round, write
from tests.support.federation import config, federate

SPLIT = {"name": "split", "embedding": 8}
TERMS = DealTerms("labels.example.org:7400", days=2)
TOWER = "import torch\n\ndef Tower(shape, width):\n    return torch.nn.Linear(*shape, width)\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_everyone_gets_their_own_and_nothing_else(tmp_path: Path) -> None:
    file, out = write(tmp_path, SPLIT), tmp_path / "dealt"
    deal(file, ("every_party.data.scale=unit",), out, TERMS)
    whole = load(file)
    everything = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    keys = {f"{name}/keys/{part}.pem" for name in ("server", *whole.federation.names) for part in ("key", "cert", "ca")}
    files = {
        "server/ids.csv",
        "server/data/labels.safetensors",
        *(f"{n}/data/columns.safetensors" for n in whole.federation.names),
    }
    configs = {f"{name}/config.yaml" for name in ("server", *whole.federation.names)}
    assert {str(path) for path in everything} == keys | files | configs | {"ca/key.pem", "ca/cert.pem", "dealt.json"}
    for place, name in enumerate(whole.federation.names):
        own = load(out / name / "config.yaml")
        assert list(own.parties) == [name] and own.server is None
        assert own.parties[name].data.scale == "unit" and own.parties[name].connect == TERMS.connect
        found = load_features(own.parties[name].data, PartyIndex(0, 1), out / name)
        meant = load_features(whole.parties[name].data, PartyIndex(place, 4), tmp_path)
        assert found.fingerprint == meant.fingerprint  # the values, the names and the shape
        for private in ("config.yaml", "keys/key.pem", "data/columns.safetensors"):
            assert (out / name / private).stat().st_mode & 0o077 == 0
    server = load(out / "server" / "config.yaml").server
    assert server is not None and server.listen == "0.0.0.0:7400"
    assert len(load_labels(server.labels, out / "server").values) == 1797


@pytest.mark.processes
def test_dealt_members_learn_the_same_as_up_and_resume_their_run(tmp_path: Path) -> None:
    """Started by the same command each time, as a container or a service is."""
    out, port = tmp_path / "dealt", free_port()
    file = write(tmp_path, SPLIT, parties=2, rounds=40, epochs=0, checkpoint={"rounds": 5})
    deal(file, ("every_party.threads=1", "server.threads=1"), out, DealTerms(f"127.0.0.1:{port}", days=1))
    names = ["party1", "party2"]

    def begin(name: str, *more: str):
        what = "server" if name == "server" else "client"
        return start(what, out / name / "config.yaml", "--in", tmp_path / "runs" / name, *more)

    slow = ("--chaos", "party1: delay=20ms")
    members = {name: begin(name, *(slow if name == "party1" else ())) for name in ("server", *names)}
    home = tmp_path / "runs"
    try:
        wait_for_round(home / "server", 2, members["server"], "checkpoint")
        members["party2"].send_signal(signal.SIGTERM)
        assert "interrupted" in finish(members["party2"]) and members["party2"].returncode == 130
        members["party2"] = begin("party2")
        outputs = {name: finish(member) for name, member in members.items()}
    finally:
        for member in members.values():
            member.kill()
    assert {member.returncode for member in members.values()} == {0}, outputs
    together = federate(config(SPLIT, "federation.parties=2", "federation.rounds=40", "federation.epochs=0"))
    losses = {event["round"]: event["loss"] for event in events(home / "server", "round")}
    assert list(losses.values()) == [event["loss"] for event in together.of_kind("round")]
    summary = json.loads((home / "server" / "summary.json").read_text())
    assert (summary["status"], summary["dataset"]) == ("completed", "digits")


def test_an_active_server_a_list_and_code_of_ones_own_come_along(tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(TOWER)
    (tmp_path / "revoked.json").write_text('{"version": 1, "revoked": []}')
    file, out = write(tmp_path, {"name": "agg_vfl", "embedding": 8}), tmp_path / "dealt"
    deal(file, ("parties.party2.model=./tower.py:Tower", "server.revoked=revoked.json"), out, TERMS)
    assert (out / "party2" / "tower.py").read_text() == TOWER and not (out / "party1" / "tower.py").exists()
    assert yaml.safe_load((out / "party2" / "config.yaml").read_text())["parties"]["party2"]["model"] == {
        "file": "./tower.py:Tower"
    }
    server = load(out / "server" / "config.yaml").server
    assert server is not None and server.active is not None and (out / "server" / "revoked.json").exists()
    assert load_features(server.active.data, PartyIndex(0, 1), out / "server").values.shape[1] == 13


def test_the_same_is_dealt_once_and_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file, out = write(tmp_path, SPLIT), tmp_path / "dealt"
    deal(file, (), out, TERMS)
    key = (out / "party1" / "keys" / "key.pem").read_bytes()
    deal(file, (), out, TERMS)
    assert (out / "party1" / "keys" / "key.pem").read_bytes() == key
    assert "was dealt already, it is left as it is" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match="was dealt from another configuration"):
        deal(file, ("federation.batch=99",), out, TERMS)
    with pytest.raises(InputError, match="'test', another federation"):
        deal(file, ("federation.id=other",), out, TERMS)


TABLES = {
    "labels.csv": "who,visit,default,amount,counts\na,1,no,1.5,2\na,2,yes,2.5,0\nb,3,no,0.25,1\nb,4,yes,4,3\n",
    "bank.csv": "who,visit,age\na,1,31\na,2,32\nb,3,\nb,4,54\n",
    "clinic.csv": "who,visit,weight\na,1,71\na,2,72\nb,3,73\nb,4,74\n",
}


def tables(folder: Path, labels: dict, *, key: str | None, name: str = "secureboost", **agreed: object) -> Path:
    for name_of, text in TABLES.items():
        (folder / name_of).write_text(text)
    data = {"source": "csv", "key": key, "missing": "mean", "scale": "none"}
    of = {"bank": {"store": "disk"} if name == "split" else {}, "clinic": {}}
    tree = {
        "federation": {
            "id": "dealt",
            "keys": {"parts": len(key) if isinstance(key, list) else 1},
            "protocol": name,
            "parties": list(of),
            "rounds": 2,
            "batch": 2,
            **agreed,
        },
        "server": {"labels": {"source": "csv", "path": "labels.csv", "key": key, **labels}},
        "parties": {party: {"data": {**data, "path": f"{party}.csv", **more}} for party, more in of.items()},
    }
    (file := folder / "federation.yaml").write_text(yaml.safe_dump(tree))
    return file


@pytest.mark.parametrize(
    ("labels", "agreed"),
    [
        ({"label": "default", "positive": "no", "weight": "counts"}, {"classes": 2}),
        ({"label": "default", "positive": "no"}, {"classes": 2, "name": "split"}),
        ({"label": "amount", "weight": "counts"}, {"task": "regression"}),
        ({"label": ["amount", "counts"]}, {"task": "regression", "targets": 2, "name": "split"}),
    ],
)
@pytest.mark.parametrize("key", ["visit", None])
def test_what_is_dealt_is_read_as_before(tmp_path: Path, labels: dict, agreed: dict, key: str | None) -> None:
    file, out = tables(tmp_path, labels, key=key, **agreed), tmp_path / "dealt"
    deal(file, (), out, TERMS)
    whole, own = load(file), load(out / "server" / "config.yaml")
    task = whole.federation.task
    meant, found = (
        load_labels(whole.server.labels, tmp_path, task),
        load_labels(own.server.labels, out / "server", task),
    )
    assert (found.values.tolist(), found.classes) == (meant.values.tolist(), meant.classes)
    assert found.ids == meant.ids and str(found.weights) == str(meant.weights)
    for place, name in enumerate(("bank", "clinic")):
        dealt = load(out / name / "config.yaml").parties[name].data
        columns = load_features(dealt, PartyIndex(0, 1), out / name)
        meant = load_features(whole.parties[name].data, PartyIndex(place, 2), tmp_path)
        assert columns.fingerprint == meant.fingerprint
        lasting = ("missing", "scale", "store", "unseen", "noise")
        assert all(getattr(dealt, key) == getattr(whole.parties[name].data, key) for key in lasting)


def test_images_and_texts_are_not_dealt(tmp_path: Path) -> None:
    file, out = tables(tmp_path, {"label": "default"}, key="visit", classes=2, name="split"), tmp_path / "dealt"
    tower = '{"name": "transformers/bert", "weights": "./weights"}'
    sets = ("parties.bank.data.store=memory", "parties.bank.data.types={who: text}", "parties.bank.data.drop=[age]")
    with pytest.raises(InputError, match=r"parties\.bank\.data has columns of images or texts, which are not dealt"):
        deal(file, (*sets, f"parties.bank.model={tower}"), out, TERMS)
    assert not out.exists()


def test_every_key_of_a_table_is_applied_by_the_dealer_or_dealt() -> None:
    """A new key belongs to one of both: otherwise dealt members would learn something else than `up`."""
    applied = {"source", "path", "delimiter", "encoding", "cache", "decimal", "thousands", "missing_values"}
    columns = applied | {"columns", "drop", "units", "split", "repeated"}
    dealt = {"key", "types", "missing", "unseen", "scale", "noise", "store"}
    assert set(CsvData.model_fields) == columns | dealt
    assert set(CsvLabels.model_fields) == applied | {"missing", "repeated"} | {"key", "label", "weight", "positive"}


def test_a_table_that_has_changed_since_is_named(tmp_path: Path) -> None:
    file, out = tables(tmp_path, {"label": "default"}, key="visit", classes=2), tmp_path / "dealt"
    deal(file, (), out, TERMS)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for changed, of in (("bank.csv", "bank"), ("labels.csv", "server")):
        text = TABLES[changed]
        (tmp_path / changed).write_text(text.replace("54", "55").replace("b,3,no", "b,3,yes"))
        with pytest.raises(InputError, match=f"was dealt from another table of {of}$"):
            deal(file, (), out, TERMS)
        (tmp_path / changed).write_text(text)
    deal(file, (), out, TERMS)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_leftovers_of_an_attempt_are_dealt_anew(tmp_path: Path) -> None:
    file, out = write(tmp_path, SPLIT), tmp_path / "dealt"
    deal(file, (), out, TERMS)
    (out / "dealt.json").unlink()
    (out / "party3" / "data" / "columns.safetensors").unlink()
    deal(file, (), out, TERMS)
    assert (out / "party3" / "data" / "columns.safetensors").exists() and (out / "dealt.json").exists()


def test_classes_in_another_order_than_the_labels_are_refused(tmp_path: Path) -> None:
    labels = {"label": "default", "positive": "no"}
    file = tables(tmp_path, labels, key="visit", classes=["no", "yes"], name="split")
    with pytest.raises(DataError, match="classes are no, yes; the labels have yes, no in this order"):
        deal(file, (), tmp_path / "dealt", TERMS)
    assert not (tmp_path / "dealt").exists()


@pytest.mark.parametrize(
    ("places", "fault"),
    [
        (("server", "party1", "party2"), "none for party3"),
        (("server", "party1", "party2", "party3", "party4", "party5"), "party5 would be idle"),
    ],
)
def test_places_for_other_members_are_refused(tmp_path: Path, places: tuple[str, ...], fault: str) -> None:
    file, out = write(tmp_path, SPLIT), tmp_path / "dealt"
    for name in places:
        (out / name).mkdir(parents=True)
    with pytest.raises(InputError, match=fault):
        deal(file, (), out, TERMS)
    assert not [path for path in out.rglob("*") if path.is_file()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_dealt_folders_can_be_moved_and_the_authority_stays(tmp_path: Path) -> None:
    file, out = write(tmp_path, SPLIT), tmp_path / "dealt"
    deal(file, (), out, DealTerms("server:7400", days=1, owner=(10001, 10002)))
    for name in ("server", "party4"):
        for path in (out / name, *(out / name).rglob("*")):
            assert (path.stat().st_uid, path.stat().st_gid) == (10001, 10002)
        assert (out / name).stat().st_mode & 0o777 == 0o700
    assert (out / "ca" / "key.pem").stat().st_uid == 0


def test_two_files_of_one_name_are_not_made_one(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(f"# {folder}\n{TOWER}")
    sets = ("parties.party2.model=./a/net.py:Tower", "parties.party2.head=./b/net.py:Tower")
    with pytest.raises(InputError, match="which would be one file"):
        deal(write(tmp_path, SPLIT), sets, tmp_path / "dealt", TERMS)


@pytest.mark.parametrize("wrong", ["labels.example.org:74000", "foo", "", ":7400", "host:port"])
def test_an_address_that_is_none_is_refused_before_anything_is_made(wrong: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT"):
        DealTerms(wrong, 1)


def test_ipv6_and_wrong_words(tmp_path: Path) -> None:
    assert DealTerms("[fd00::7]:7400", 1).listen == "[::]:7400" and DealTerms("[fd00::7]:7400", 1).host == "fd00::7"
    assert read_owner("") is None and read_owner("7") == (7, 7) and read_owner("7:8") == (7, 8)
    for wrong in ("me", "7:", ":8", "7:8:9", "-1"):
        with pytest.raises(InputError, match="--owner"):
            read_owner(wrong)
    error = CliRunner().invoke(app, ["client", "x.yaml", "--in", str(tmp_path), "--out", str(tmp_path)]).exception
    assert isinstance(error, InputError) and error.hint is not None and "give one of the three" in error.hint
