"""What is handed on: the wheel and the sdist have what the tree has, under one version."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

from common.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]


def files_of_the_tree() -> set[str]:
    """All files of the packages, whatever their kind; of experiments, beside which data may lie, configurations."""
    return {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*.yaml" if name == "experiments" else "*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.timeout(300)
def test_wheel_and_sdist_have_every_file_and_the_wheel_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tree = files_of_the_tree()
    assert {"experiments/demo.yaml", "common/wire/_generated/split_pb2.py", "cli/page/script.py"} <= tree

    with zipfile.ZipFile(tmp_path / f"colonnade-{VERSION}-py3-none-any.whl") as wheel:
        information = f"colonnade-{VERSION}.dist-info/"
        assert {name for name in wheel.namelist() if not name.startswith(information)} == tree
        assert wheel.read(f"{information}licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        metadata = message_from_bytes(wheel.read(f"{information}METADATA"))
        assert metadata["License-Expression"] == "Apache-2.0"
        assert "colonnade = cli.start:main" in wheel.read(f"{information}entry_points.txt").decode()

    with tarfile.open(tmp_path / f"colonnade-{VERSION}.tar.gz") as sdist:
        there = {name.partition("/")[2] for name in sdist.getnames()}
    for_readers = {"CITATION.cff", "Makefile", "SECURITY.md", "constraints.txt", "docs/site.py", "mkdocs.yml"}
    assert tree | for_readers | {"proto/split.proto", f"tests/{Path(__file__).name}"} <= there


def test_one_version_everywhere() -> None:
    dockerfile = re.search(r"^ARG VERSION=(.+)$", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    changes = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert dockerfile and changes
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert {PROJECT["project"]["version"], dockerfile[1], changes[1], cited} == {VERSION}
