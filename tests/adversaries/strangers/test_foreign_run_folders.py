"""Run folders that somebody else has prepared: links, files and folders of other users, and ids that lead elsewhere.

Bounds: no cell.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from colonnade.cli.data.commands import forget
from colonnade.common.config.federation import check_id
from colonnade.common.errors import ColonnadeError, ConfigError, EnvironmentFault, InputError
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.common.parsing.file import load
from colonnade.common.privacy.accounting.ledger import Chain
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.files import open_own, refuse_foreign, write_durably
from colonnade.common.run.json_text import open_to_append
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.folder_lock import locked_folder
from colonnade.launcher.virtual import run_virtually
from colonnade.server.prediction.serving.tokens import add_caller
from colonnade_lab.attacks.inversion import draw_pairs as draw
from tests.support.tables import table_tree, write_tables

CONTENT = b"of somebody else, and of no run\n"
STRANGER = 12345


def locks(path: Path) -> None:
    with locked_folder(path.parent, "", lock_name=path.name):
        pass


def keeps(path: Path) -> None:
    RunCache(path.parent).keep(path.stem, "1", {"values": torch.ones(1)})


def mlflow_locks(path: Path) -> None:
    from colonnade.common.tracking.mlflow_tracker import make_database  # here: every worker would import MLflow

    make_database(path.with_suffix(""))


WRITERS: dict[str, Callable[[Path], object]] = {
    ".lock": locks,
    ".launcher.lock": locks,
    "ledger.jsonl": lambda path: Chain(path).append({"a": 1}),
    "events.jsonl": open_to_append,
    "serve.tokens": lambda path: add_caller(path, "caller"),
    "a.partial": keeps,
    "pinned.json.partial": lambda path: write_durably(path.with_suffix(""), b"x"),
    "mlflow.db.lock": mlflow_locks,
    "inversion.png": lambda path: draw(path, torch.rand(2, 1, 4, 4), torch.rand(2, 1, 4, 4)),
    "probe.partial": lambda path: Checkpoints(path.parent).prepare(),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", ["link", "dangling", "second name", "pipe"])
def test_what_lies_under_the_name_of_our_file_is_not_written_to(tmp_path: Path, name: str, kind: str) -> None:
    if (name, kind) == ("serve.tokens", "pipe"):
        pytest.skip("it is read first, and a secret may come from a pipe")
    target, folder = tmp_path / "target", tmp_path / "run"
    folder.mkdir()
    if kind in ("link", "second name"):
        target.write_bytes(CONTENT)
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "second name":
        os.link(target, folder / name)
    else:
        (folder / name).symlink_to(target)
    try:
        WRITERS[name](folder / name)
    except (ColonnadeError, OSError) as refused:
        assert "not written to" in str(refused) or "group or others" in str(refused) or name == "serve.tokens"
    if kind in ("link", "second name"):
        assert target.read_bytes() == CONTENT
    assert kind != "dangling" or not target.exists()


def run(folder: Path, out: Path) -> None:
    tree = table_tree(epochs=1, checkpoint={"rounds": 4}, align="psi")
    tree["federation"]["privacy"] = {"mechanism": "gaussian", "noise_multiplier": 30.0, "delta": 1e-3, "clip": 1.0}
    for name in tree["parties"]:
        tree["parties"][name] |= {"capture": {}}
    (folder / "tables.yaml").write_text(yaml.safe_dump(tree))
    run_virtually(GivenConfig.of(folder / "tables.yaml"), out)


def test_a_run_follows_no_link_whatever_file_it_is_planted_for(tmp_path: Path) -> None:
    write_tables(tmp_path)
    run(tmp_path, tmp_path / "first")
    there = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file())
    names = {path.name: path for path in there if "00000004" not in path.name}.values()  # of one member each
    assert len(names) > 10
    outside = tmp_path / "outside"
    for at, name in enumerate(names):
        out = tmp_path / f"again{at}"
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(outside)
        with contextlib.suppress(ColonnadeError):  # it may refuse, and may replace the link
            run(tmp_path, out)
        assert not outside.exists(), name


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path / "run", STRANGER + 1, -1)
    with pytest.raises(EnvironmentFault, match="belongs to another user"), locked_folder(tmp_path / "run", ""):
        pass
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_another_user_has_put_into_a_folder_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "run/parties/bank"
    place.mkdir(parents=True)
    planted = place / "ledger.jsonl"
    if kind == "link":
        planted.symlink_to(tmp_path)
    elif kind == "folder":
        planted.mkdir()
    else:
        planted.touch()
    os.chown(planted, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(EnvironmentFault, match=r"holds parties/bank/ledger.jsonl, which belongs to another user"):
        refuse_foreign(tmp_path / "run")
    if kind == "file":
        with pytest.raises(OSError, match="belongs to another user"):
            open_own(planted, os.O_WRONLY)


def test_a_file_is_emptied_only_once_it_is_known_to_be_ours(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(CONTENT)
    os.link(tmp_path / "target", tmp_path / "other")
    with pytest.raises(OSError, match="2 names"):
        open_own(tmp_path / "other", os.O_WRONLY | os.O_TRUNC)
    assert (tmp_path / "target").read_bytes() == CONTENT


BAD = [
    "../../x", "a/b", "/x", "..", ".", "", "x" * 300, "é" * 60, ".x", "-x", "x ", "a\0b", "a\nb", "\x1b[2J", "x/", "~",
]  # fmt: skip


@pytest.mark.parametrize("id", BAD)
def test_an_id_that_names_no_folder_is_refused(id: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.id = "):
        check_id(id)


@pytest.mark.parametrize("id", ["demo", "vimadmm_j-table4", "Häuser 2.0", "7", "x" * 100])
def test_an_id_that_names_a_folder(id: str) -> None:
    assert check_id(id) == id


def test_a_configuration_with_such_an_id_begins_nothing_and_an_old_run_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    run(tmp_path, tmp_path / "runs/a/b-1")
    begun = RunFolder(tmp_path / "runs/a/b-1")
    for file in (begun.config, tmp_path / "tables.yaml"):
        text = file.read_text()
        line = next(line for line in text.splitlines() if line.strip().startswith("id: "))
        file.write_text(text.replace(line, line[: line.index("id: ")] + "id: a/b"))
    before = sorted(path for path in tmp_path.rglob("*"))
    given = GivenConfig.of(tmp_path / "tables.yaml")
    for refused in (lambda: load(tmp_path / "tables.yaml"), lambda: run_virtually(given)):
        with pytest.raises(ConfigError, match=r"federation\.id = 'a/b'"):
            refused()
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert load_begun(begun.config).federation.id == "a/b"
    with pytest.raises(InputError, match="is no name in a folder"), locked_folder(None, "a/b"):
        pass
    assert (tmp_path / "runs/a/.alignments").exists()
    forget(tmp_path / "runs")
    assert not (tmp_path / "runs/a/.alignments").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", "a\0b"])
def test_a_party_whose_name_is_a_path_has_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no name in a folder"):
        RunFolder(tmp_path).party(name)
