"""Distributions: the wheel and the sdist have the files of the tree, under one version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import yaml

from colonnade.common.version import VERSION
from tests.support.outside import PLUGIN
from tests.support.rooms import LINKED
from tests.support.shared import once_for_all_workers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
END = "--- end of a command ---"
COMMANDS = f"""
import json, os, sys
import colonnade
from colonnade.cli.start import main

print(colonnade.__file__, {END!r})
for program, *words in json.loads(sys.argv[1]):
    sys.argv = [program, *words]
    if program == "cd":
        os.chdir(words[0])
        continue
    try:
        if program == "pytest":
            import pytest

            sys.exit(pytest.main(words))
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print({END!r})
"""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAB = tomllib.loads((ROOT / "lab/pyproject.toml").read_text())


def files_of_the_tree() -> set[str]:
    """All files of the packages; of experiments, which may hold data, only configurations, texts and own models."""
    own = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "colonnade").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return own | {
        path.relative_to(ROOT).as_posix()
        for name in LINKED
        for path in (ROOT / name).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (name != "experiments" or path.suffix in {".yaml", ".txt", ".py"})
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels, made of their sdists, and the sdists, made of the tree.

    Builds share files of the tree: two at a time disturb each other.
    """

    def build(folder: Path) -> None:
        for source in (ROOT, ROOT / "lab"):
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr

    return once_for_all_workers(tmp_path_factory, "dist", build)


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

    with zipfile.ZipFile(built / f"colonnade_lab-{VERSION}-py3-none-any.whl") as wheel:
        lab = {path.relative_to(ROOT / "lab").as_posix() for path in (ROOT / "lab/colonnade_lab").rglob("*.*")}
        names = {name for name in wheel.namelist() if name.startswith("colonnade_lab/")}
        assert names == {name for name in lab if "__pycache__" not in name}
        metadata = message_from_bytes(wheel.read(f"colonnade_lab-{VERSION}.dist-info/METADATA"))
        assert f"colonnade=={VERSION}" in metadata.get_all("Requires-Dist")

    with tarfile.open(built / f"colonnade-{VERSION}.tar.gz") as sdist:
        there = {name.partition("/")[2] for name in sdist.getnames()}
    for_readers = {"CITATION.cff", "Makefile", "SECURITY.md", "constraints.txt", "docs/site.py", "mkdocs.yml"}
    assert (
        tree
        | for_readers
        | {"examples/plugin/colonnade_signs.py", "proto/embeddings.proto", "setup.py", f"tests/{Path(__file__).name}"}
        <= there
    )


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, and links to its dependencies."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    here, there = (sysconfig.get_path("purelib", vars={"base": str(base)}) for base in (sys.prefix, environment))
    for name, tree in (("colonnade", ROOT), ("colonnade_lab", ROOT / "lab")):
        with zipfile.ZipFile(built / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
            wheel.extractall(there)
            for file in wheel.namelist():
                take_compiled(tree / file, Path(there) / file)
    dependencies = [path for path in Path(here).iterdir() if "colonnade" not in path.name]
    for path in dependencies:  # all but this project's own installation
        (Path(there) / path.name).symlink_to(path)
    return environment / "bin" / "python"


def take_compiled(source: Path, installed: Path) -> None:
    """The compiled form of a file of the tree for its copy, which gets its time: to compile all takes long."""
    if source.suffix == ".py" and (compiled := Path(cache_from_source(str(source)))).exists():
        os.utime(installed, ns=(source.stat().st_mtime_ns,) * 2)
        copy = Path(cache_from_source(str(installed)))
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(compiled, copy)


def run(python: Path, folder: Path, *words: object, code: int = 0, **environment: str) -> str:
    """`python -m WORDS` in a folder: its output."""
    return _run(python, folder, "-m", *map(str, words), code=code, **environment)


def _run(python: Path, folder: Path, *words: str, code: int = 0, **environment: str) -> str:
    compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # once, and not by each process: the wheel has no compiled files
    done = subprocess.run(
        [python, *words], cwd=folder, env={**os.environ, **compiled, **environment}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


TESTS = ("pytest", "-q", "-p", "no:cacheprovider")


def commands(python: Path, folder: Path, *lines: tuple[str, ...]) -> list[str]:
    """`colonnade ...`, `pytest ...` or `cd ...` one after the other, each without an error.

    One process imports torch for all. Returns where Colonnade was imported from, and outputs of all but `cd`.
    """
    return _run(python, folder, "-c", COMMANDS, json.dumps(lines)).split(END)[:-1]


def pip_install(python: Path, *packages: Path) -> None:
    """As a user does, without an index: setuptools and Colonnade are there."""
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    run(python, packages[0], "pip", "install", *offline, *packages)


def decoys(folder: Path) -> str:
    """A folder for PYTHONPATH: packages named as our folders, which end the program that imports them."""
    for name in LINKED:
        decoy = folder / "decoys" / name
        decoy.mkdir(parents=True)
        (decoy / "__init__.py").write_text(f"raise SystemExit('the decoy {name} was imported')")
    return str(folder / "decoys")


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_protocols_of_other_packages_are_installed_tested_and_run(python: Path, tmp_path: Path) -> None:
    """examples/plugin as its README has it, over processes: a run is resumed, and ends as a simulated one.

    The installed wheel runs it, beside packages with the names of our folders. A new package is tested as it is
    written.
    """
    package, new = tmp_path / "plugin", tmp_path / "colonnade-my-way"
    shutil.copytree(PLUGIN, package, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    run(python, tmp_path, "colonnade", "new", "protocol", "my_way")
    pip_install(python, package, new)
    (package / "colonnade_signs.py").unlink()  # the installed one is meant
    equal = ("--set", "federation.public_start=true")  # to the last bit
    words = ("federation.yaml", "--set", "federation.epochs=2", *equal, "--out")
    crash = ("--chaos", "party2: crash=14")
    said = run(python, package, "colonnade", "up", *words, "broken", *crash, PYTHONPATH=decoys(tmp_path))
    assert "party2 was killed by SIGKILL" in said
    where, tested, checked, _, new_tested, simulated = commands(
        python, package, TESTS, ("colonnade", "check", "federation.yaml"),
        ("colonnade", "simulate", *words, "alone"),
        ("cd", str(new)), TESTS, ("colonnade", "simulate", "federation.yaml", "--out", "run"),
    )  # fmt: skip
    assert Path(where.strip()).is_relative_to(python.parents[1])
    assert " passed" in tested and " found" in checked.replace("\n", " ")
    alone, broken = (json.loads((package / name / "summary.json").read_text()) for name in ("alone", "broken"))
    assert alone["protocol"] == "signs" and alone["metrics"] == broken["metrics"]
    assert " passed" in new_tested and "my_way on digits" in simulated
    assert json.loads((new / "run" / "summary.json").read_text())["metrics"]["test_accuracy"] > 0.8


def test_one_version_everywhere() -> None:
    dockerfile = re.search(r"^ARG VERSION=(.+)$", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    changes = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert dockerfile and changes
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    needed = LAB["project"]["dependencies"][0].removeprefix("colonnade==")
    versions = {PROJECT["project"]["version"], LAB["project"]["version"], needed}
    assert versions | {dockerfile[1], changes[1], cited} == {VERSION}
