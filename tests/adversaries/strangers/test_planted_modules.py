"""Files in the working directory that have the names of modules: no process of ours imports them.

Bounds: no cell.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from colonnade.common.crypto.group import ELEMENT, Secret
from colonnade.common.crypto.raising import Raising
from colonnade.common.run.python_child import child_environment, python_module, safe_children
from tests.support.federation import tree
from tests.support.rooms import CODE

ROOT = Path(__file__).parents[3]
COLONNADE = Path(sys.executable).with_name("colonnade")
PLANTED = (
    "selectors", "struct", "json", "ctypes", "gc", "subprocess", "random", "typing", "pathlib", "contextlib", "socket",
    "torch", "numpy", "grpc", "yaml", "pydantic", "typer", "google", "pandas", "pyarrow", "uvloop", "safetensors",
    "nacl", "cryptography", "sklearn", "common", "client", "server", "launcher", "cli",
)  # fmt: skip
STARTERS = {"Popen", "run", "call", "check_call", "check_output", "execv", "execvp", "execve", "posix_spawn",
            "create_subprocess_exec", "create_subprocess_shell"}  # fmt: skip
# Without any of these a file needs no parsing.
WORDS = re.compile(rf"(subprocess|os|asyncio)\.({'|'.join(STARTERS)})|sys\.executable|get_context|ProcessPoolExecutor")


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with a file for each name that writes a mark when it is imported."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r} + chr(10))\n")
    return folder


def refuse_imports(folder: Path) -> None:
    mark = folder.parent / "imported"
    assert not mark.exists(), f"imported from the working directory: {mark.read_text().split()}"


def colonnade(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(COLONNADE), *words], cwd=folder, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    refuse_imports(folder)
    return done


@pytest.mark.skipif(not COLONNADE.exists(), reason="the command is not installed beside Python")
def test_a_run_and_its_predictions_import_nothing_from_the_working_directory(planted: Path) -> None:
    (planted / "ids.csv").write_text("id\n1\n2\n")
    (planted / "two.yaml").write_text(yaml.safe_dump(tree({"name": "split"}, parties=2, rounds=1, epochs=0)))
    ended = colonnade(planted, "up", "two.yaml", "--out", "run", "--predict", "ids.csv")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (planted / "run" / "predictions.csv").read_text().count("\n") == 3


def test_a_child_starts_without_the_working_directory(planted: Path) -> None:
    """Another than the fork server, which a run starts."""
    done = subprocess.run(
        python_module("colonnade.search.workers"), cwd=planted, input="", capture_output=True, text=True, check=False,
        env=child_environment(PYTHONPATH=os.pathsep.join(["", str(ROOT), ""])),
    )  # fmt: skip
    refuse_imports(planted)
    assert done.returncode == 0, done.stderr


def test_keys_are_raised_without_the_working_directory(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(planted)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), ""]))
    raising, secret = Raising(2), Secret(bytes([7]) + bytes(31))
    try:
        keys = [str(number).encode() for number in range(600)]
        assert len(raising.keys(secret, keys, b"tag")) == 600 * ELEMENT
    finally:
        raising.close()
    refuse_imports(planted)


def test_processes_of_a_library_start_without_the_working_directory(planted: Path) -> None:
    code = (
        "import multiprocessing\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from colonnade.common.run.python_child import safe_children\n"
        "import os\n"
        "if __name__ == '__main__':\n"
        "    with safe_children(), ProcessPoolExecutor(1, multiprocessing.get_context('forkserver')) as pool:\n"
        "        print(pool.submit(os.getpid).result())\n"
        "    print(os.environ.get('PYTHONSAFEPATH'))\n"
    )
    script = planted.parent / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=planted, capture_output=True, text=True, check=True,
        env=child_environment(PYTHONPATH=str(ROOT)),
    )  # fmt: skip
    refuse_imports(planted)
    assert done.stdout.split()[1] == "None"  # what the caller starts later is its own affair


def test_empty_entries_of_the_path_go_and_named_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "/plug-ins", ""]))
    assert child_environment()["PYTHONPATH"] == os.pathsep.join([".", "/plug-ins"])
    monkeypatch.setenv("PYTHONPATH", "")
    assert "PYTHONPATH" not in child_environment(OMP_NUM_THREADS="1")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with safe_children():
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert "PYTHONSAFEPATH" not in os.environ and os.environ["PYTHONPATH"] == ""


def test_a_path_of_empty_entries_alone_goes_for_the_children_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    with safe_children():
        assert "PYTHONPATH" not in os.environ
    assert os.environ["PYTHONPATH"] == os.pathsep


def starts() -> Iterator[tuple[str, ast.AST, str]]:
    """Every expression of the product that can name the interpreter or start a process, and its source."""
    for folder in (*CODE, "deploy"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if not WORDS.search(text):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.List | ast.Tuple | ast.Call):
                    yield str(path.relative_to(ROOT)), node, text


def test_every_command_line_with_the_interpreter_has_the_option() -> None:
    found = 0
    for path, node, text in starts():
        if isinstance(node, ast.List | ast.Tuple) and any(ast.unparse(each) == "sys.executable" for each in node.elts):
            found += 1
            words = [ast.unparse(each) for each in node.elts]
            assert words[:2] == ["sys.executable", "'-P'"], f"{path}:{node.lineno}"
        elif isinstance(node, ast.Call) and "sys.executable" in map(ast.unparse, node.args):
            raise AssertionError(f"{path}:{node.lineno}: make the command line by python_module")
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
            "get_context",
            "ProcessPoolExecutor",
        ):
            assert "safe_children()" in text, f"{path}:{node.lineno}"
    assert found >= 3


def test_who_starts_a_process_is_known() -> None:
    """A new start of a process belongs here, once its environment is looked at."""
    found = {
        path
        for path, node, text in starts()
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in STARTERS
        and re.match(r"(subprocess|os|asyncio)\.", ast.unparse(node.func))
    }
    assert found == {
        "client/member/sessions.py",  # /bin/sh alone
        "common/crypto/raising.py", "colonnade/launcher/processes.py",
        "colonnade/search/workers.py", "deploy/release.py", "deploy/wan.py",
    }  # fmt: skip


def test_deployments_start_the_installed_command() -> None:
    """`colonnade` is a script in a folder of root's: Python puts that folder first, and not the working directory."""
    files = [*(ROOT / "deploy").rglob("*.y*ml"), *(ROOT / "deploy").rglob("*.service"), ROOT / "docker-compose.yml"]
    for path in (*files, ROOT / "deploy/Dockerfile"):
        for line in path.read_text().splitlines():
            if re.match(r"\s*(command|entrypoint|ENTRYPOINT|CMD|ExecStart)\b", line):
                assert not re.search(r"\bpython3?\b(?!,? -P)|PYTHONPATH", line), f"{path}: {line}"
