"""A CSV table is parsed once a run: by whoever needs it first."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.read.commands import card
from colonnade.common.data import table, tables
from colonnade.common.data.columns.features import Features
from colonnade.common.data.table import TableColumns
from colonnade.common.errors import DataError
from colonnade.common.observability.telemetry import Event
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.federation import LaunchOptions, launch
from colonnade.launcher.processes import started
from colonnade.launcher.virtual import resume_virtually, run_virtually
from colonnade.reports.explanation.write import write_explanation

MEMBERS = ("server", "party1", "party2")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tables that are read."""
    found, columns, words = list[str](), TableColumns.features, table.read_words

    def features(self: TableColumns) -> Features:
        found.append(Path(str(self.table)).stem)
        return columns(self)

    def read_words(source: table.Table, *others: Any, **more: Any) -> Any:
        found.append(Path(str(source)).stem)
        return words(source, *others, **more)

    monkeypatch.setattr(TableColumns, "features", features)
    monkeypatch.setattr(tables, "read_words", read_words)
    return found


def write(folder: Path, align: str = "none", **data: Any) -> Path:
    """Tables of 120 rows, whose label is a sign, and their configuration."""
    draws = random.Random(0)
    lines: dict[str, list[str]] = {member: ["who,value"] for member in MEMBERS}
    for row in range(120):
        values = [draws.gauss(0, 1) for _ in range(2)]
        lines["server"].append(f"w{row},{'yes' if sum(values) > 0 else 'no'}")
        for party, value in zip(MEMBERS[1:], values, strict=True):
            lines[party].append(f"w{row},{value}")
    for member, text in lines.items():
        (folder / f"{member}.csv").write_text("\n".join(text) + "\n")
    source = {"source": "csv", "key": "who", **data}
    file = folder / "federation.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "federation": {
                    "id": "once", "protocol": {"name": "split", "embedding": 4}, "parties": 2, "classes": 2,
                    "epochs": 2, "batch": 16, "align": align, "keys": {"seeded": True},
                },
                "server": {"labels": {**source, "path": "server.csv", "label": "value"}},
                "parties": {name: {"data": {**source, "path": f"{name}.csv"}} for name in MEMBERS[1:]},
            }
        )
    )  # fmt: skip
    return file


def copies(run: Path) -> list[Path]:
    return sorted(run.rglob("tables/*"))


@pytest.mark.parametrize("align", ["none", "psi"])
def test_once_for_a_run_its_resumption_and_its_explanation(tmp_path: Path, reads: list[str], align: str) -> None:
    run, _ = run_virtually(GivenConfig.of(write(tmp_path, align)), tmp_path / "run")
    assert sorted(reads) == sorted(MEMBERS)
    assert [path.name for path in copies(run)] == ["columns.safetensors", "columns.safetensors", "labels.safetensors"]
    write_explanation(run, tmp_path / "explained")
    resume_virtually(run, ("federation.epochs=3",))
    assert len(reads) == 3


def test_every_time_without_copies(tmp_path: Path, reads: list[str]) -> None:
    run, _ = run_virtually(GivenConfig.of(write(tmp_path, cache=False)), tmp_path / "run")
    assert len(reads) == 6 and not copies(run)


def test_private_labels_are_not_copied(tmp_path: Path) -> None:
    given = GivenConfig.of(write(tmp_path), sets=("server.privacy.labels={deviation: 1, seeded: true}",))
    run, _ = run_virtually(given, tmp_path / "run")
    assert [path.name for path in copies(run)] == ["columns.safetensors"] * 2


def test_explanations_do_not_depend_on_a_copy(tmp_path: Path) -> None:
    run, _ = run_virtually(GivenConfig.of(write(tmp_path)), tmp_path / "run")
    write_explanation(run, tmp_path / "with")
    for path in copies(run):
        path.unlink()
    write_explanation(run, tmp_path / "without")
    with_it, without = ((tmp_path / name / "explain.json").read_text() for name in ("with", "without"))
    assert without == with_it and not copies(run)


def test_a_card_reads_no_table(tmp_path: Path, reads: list[str]) -> None:
    run, _ = run_virtually(GivenConfig.of(write(tmp_path)), tmp_path / "run")
    reads.clear()
    for path in [*tmp_path.glob("*.csv"), *copies(run)]:
        path.unlink()
    card(run, None)
    assert "| party1 | 1 | csv |" in (run / "card.md").read_text() and not reads


def test_a_run_that_never_begins_leaves_no_copy(tmp_path: Path) -> None:
    file = write(tmp_path)
    lines = (tmp_path / "party2.csv").read_text().splitlines()
    (tmp_path / "party2.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    with pytest.raises(DataError, match="party2: the keys of its table"):
        run_virtually(GivenConfig.of(file), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("spell", [lambda key: f" {key} ", lambda key: key.replace("w", "ｗ")], ids=["space", "width"])
def test_keys_that_compare_equal_are_equal_however_they_are_written(
    tmp_path: Path, spell: Callable[[str], str]
) -> None:
    file = write(tmp_path)
    head, *lines = (tmp_path / "party2.csv").read_text().splitlines()
    parts = [line.split(",") for line in lines]
    (tmp_path / "party2.csv").write_text("\n".join([head, *(f"{spell(key)},{value}" for key, value in parts)]) + "\n")
    _, outcome = run_virtually(GivenConfig.of(file), tmp_path / "run")
    assert outcome.status == "completed"


@pytest.mark.processes
def test_members_processes_take_the_copies_of_the_launcher(tmp_path: Path) -> None:
    """A member that parsed its table again would replace the copy, by a file of another number."""
    run, seen = tmp_path / "run", list[list[tuple[int, int]]]()

    def look(event: Event) -> None:
        if event["kind"] == "listening":
            seen.append([(path.stat().st_ino, path.stat().st_mtime_ns) for path in copies(run)])

    given = GivenConfig.of(write(tmp_path))
    with started() as processes:
        ended = launch(processes, given, run, LaunchOptions(listeners=(look,)))
    assert ended.failure is None and len(seen[0]) == 3
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in copies(run)] == seen[0]
    shutil.rmtree(run)
