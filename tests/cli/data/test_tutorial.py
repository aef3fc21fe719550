"""docs/tutorial.md, executed: its files, its commands in its folders, and the output that it quotes."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli.main import app
from colonnade.common.errors import ConfigError
from tests.support import warm
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
FENCE = re.compile(r"^```(\w*)(?: title=\"(.*?)\")?\n(.*?)^```", re.M | re.S)
FENCES = FENCE.findall(PAGE)
RUNNING = ", left running"
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
# Depends on the run, or on the load: checkpoints and messages that are repeated, or left out.
VARYING = re.compile(r"sha256:|^\.\.\.$|test accuracy|embeding|allowed here")
AGREED = "one/federation.yaml"


class Follower:
    """Executes the page in a folder, on a free port, and keeps all output."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.folder, self.said = folder, ""
        self.running: list[subprocess.Popen[str]] = []

    def follow(self) -> None:
        for kind, title, text in FENCES:
            here = self.folder / title.removesuffix(RUNNING)
            if title == AGREED:
                here.write_text(text)
            elif kind == "yaml":
                agreed = (here.parent / "federation.yaml").read_text()
                here.write_text(agreed + text.replace("7400", self.port))
            elif kind in ("python", "text"):
                here.write_text(text)
            elif kind == "sh":
                for line in text.splitlines():
                    self._run(shlex.split(line), here, stays=title.endswith(RUNNING))

    def finish(self) -> None:
        for process in self.running:
            self.said += process.communicate(timeout=PATIENCE)[0]
            assert process.returncode == 0, self.said
        self.running.clear()

    def _run(self, words: list[str], here: Path, *, stays: bool) -> None:
        if stays:
            pipe, also = subprocess.PIPE, subprocess.STDOUT
            self.running.append(warm.start(*words[1:], cwd=here, env=ENV, stdout=pipe, stderr=also))
        elif words[:2] == ["colonnade", "predict"]:  # the parties answer meanwhile
            self._call([*warm.COLONNADE, *words[1:]], here)
            self.finish()
        elif words[0] == "colonnade":
            self.finish()
            self._invoke(words[1:], here)
        else:
            self._call([sys.executable, *words[1:]] if words[0] == "python" else words, here)

    def _call(self, command: list[str], here: Path) -> None:
        done = warm.run(command, check=False, cwd=here, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said += done.stdout
        assert done.returncode == 0, self.said

    def _invoke(self, words: list[str], here: Path) -> None:
        """Runs a command in this process, which has all imports."""
        before = Path.cwd()
        os.chdir(here)
        try:
            done = CliRunner(env={"COLUMNS": "100"}).invoke(app, words)
        finally:
            os.chdir(before)
        self.said += done.output
        assert done.exit_code == 0, done.output


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path)
    try:
        follower.follow()
        yield follower
    finally:
        for process in follower.running:
            process.kill()


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_the_tutorial_reaches_its_result_and_shows_its_output(followed: Follower) -> None:
    summary = json.loads((followed.folder / "one/run-server/summary.json").read_text())
    assert summary["status"] == "completed" and summary["rounds"] == 60
    assert summary["metrics"]["test_accuracy"] > 0.85  # chance is .63
    with (followed.folder / "one/predictions.csv").open() as lines:
        predicted = list(csv.DictReader(lines))
    assert [line["id"] for line in predicted] == ["case-100", "case-300", "case-999"]
    assert all(line["class"] in ("benign", "malignant") for line in predicted[:2]) and not predicted[2]["class"]

    said = " ".join(followed.said.split())
    sections = PAGE.partition("## 4. Keys")[2].partition("## 8.")[0]
    shown = [line for kind, _, text in FENCE.findall(sections) if not kind for line in text.splitlines()]
    assert len(shown) > 20
    for line in shown:
        words = re.split(r"\s{2,}", line.replace("7400", followed.port).strip())
        # Of a table's line neither the counts nor the line break of its last column, which depends on them.
        kept = (words[0], " ".join(words[-1].split()[:2]) if len(words) > 1 else words[0])
        assert all(part in said for part in kept) or VARYING.search(line), (line, followed.said)


def test_the_misspelt_key_gives_the_pages_error(tmp_path: Path) -> None:
    agreed = next(text for _, title, text in FENCES if title == AGREED).replace("embedding", "embeding")
    member = next(text for _, title, text in FENCES if title == "two/lab.yaml")
    (tmp_path / "lab.yaml").write_text(agreed + member)
    error = CliRunner().invoke(app, ["check", str(tmp_path / "lab.yaml")]).exception
    assert isinstance(error, ConfigError)
    assert f"error: {error}\n       {error.hint}\n" in PAGE
