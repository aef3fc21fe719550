"""Distributions: the wheel and the sdist have the files of the tree, under one version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

from colonnade.common.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = sorted(path.name for path in (ROOT / "colonnade").iterdir() if path.is_symlink())


def files_of_the_tree() -> set[str]:
    """All files of the packages; of experiments, which may hold data, only the configurations."""
    own = {path.relative_to(ROOT).as_posix() for path in (ROOT / "colonnade").iterdir() if path.is_file()}
    return own | {
        path.relative_to(ROOT).as_posix()
        for name in ROOMS
        for path in (ROOT / name).rglob("*.yaml" if name == "experiments" else "*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, made of the sdist, and the sdist, made of the tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.timeout(300)
def test_wheel_and_sdist_have_every_file_and_the_wheel_nothing_else(built: Path) -> None:
    tree = files_of_the_tree()
    expected = {"colonnade/py.typed", "experiments/demo.yaml", "common/wire/_generated/tensor_pb2.py"}
    assert expected <= tree

    with zipfile.ZipFile(built / f"colonnade-{VERSION}-py3-none-any.whl") as wheel:
        information = f"colonnade-{VERSION}.dist-info/"
        installed = {name for name in wheel.namelist() if not name.startswith(information)}
        assert installed == {f"colonnade/{name.removeprefix('colonnade/')}" for name in tree}
        assert wheel.read(f"{information}licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        metadata = message_from_bytes(wheel.read(f"{information}METADATA"))
        assert metadata["License-Expression"] == "Apache-2.0"
        assert "colonnade = colonnade.cli.start:main" in wheel.read(f"{information}entry_points.txt").decode()

    with tarfile.open(built / f"colonnade-{VERSION}.tar.gz") as sdist:
        there = {name.partition("/")[2] for name in sdist.getnames()}
    for_readers = {"CITATION.cff", "Makefile", "SECURITY.md", "constraints.txt", "docs/site.py", "mkdocs.yml"}
    assert tree | for_readers | {"proto/embeddings.proto", "setup.py", f"tests/{Path(__file__).name}"} <= there


@pytest.mark.processes
def test_the_installed_wheel_runs_beside_packages_of_other_names(built: Path, tmp_path: Path) -> None:
    """An environment of its own; on PYTHONPATH are packages named as our folders, which end the program."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    here, there = (sysconfig.get_path("purelib", vars={"base": str(base)}) for base in (sys.prefix, environment))
    with zipfile.ZipFile(built / f"colonnade-{VERSION}-py3-none-any.whl") as wheel:
        wheel.extractall(there)
    dependencies = [path for path in Path(here).iterdir() if "colonnade" not in path.name]
    for path in dependencies:  # all but this project's own installation
        (Path(there) / path.name).symlink_to(path)
    for name in ("attacks", "benchmarks", "cli", "client", "common", "launcher", "reports", "server", "simulation"):
        decoy = tmp_path / "decoys" / name
        decoy.mkdir(parents=True)
        (decoy / "__init__.py").write_text(f"raise SystemExit('the decoy {name} was imported')")
    python = environment / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "colonnade", "up", "--out", "run", *("--set", "federation.epochs=2"),
         *("--set", "federation.parties=2")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "decoys")}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    where = subprocess.run([python, "-c", "import colonnade; print(colonnade.__file__)"], cwd=tmp_path,
                           check=True, capture_output=True, text=True).stdout  # fmt: skip
    assert Path(where.strip()).is_relative_to(there)


def test_one_version_everywhere() -> None:
    dockerfile = re.search(r"^ARG VERSION=(.+)$", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    changes = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert dockerfile and changes
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert {PROJECT["project"]["version"], dockerfile[1], changes[1], cited} == {VERSION}
