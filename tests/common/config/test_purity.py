"""A configuration is read, and commands are found, without a tensor library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "numpy", "grpc", "scipy", "pyarrow"}
READ = """
from pathlib import Path
from colonnade.common.parsing.file import load
from colonnade.common.contracts.registry import CONTRACTS
files = [file for file in Path("experiments").glob("*/*.yaml") if file.parent.name not in ("papers", "quick")]
assert {load(file).federation.protocol.name for file in files} > {"vimadmm", "split"}
assert all(CONTRACTS.values())
"""


COMMANDS = """
import io, os, sys
from contextlib import redirect_stdout
from colonnade.cli.main import app, main
from colonnade.cli.commands import COMMANDS
from colonnade import laboratory

def run(*words):
    with redirect_stdout(io.StringIO()) as said:
        app(words, standalone_mode=False)
    return said.getvalue()

commands = {f"colonnade.cli.{command.place.partition(':')[0]}" for command in COMMANDS.values()}
assert all(name in run("--help") for name in (*COMMANDS, *laboratory.COMMANDS))
assert not commands & set(sys.modules), "--help imports a command"
assert "--run-models" in run("check", "--help")
assert commands & set(sys.modules) == {"colonnade.cli.data.commands"}, "--help of a command imports others"
for name in COMMANDS:
    if name != "health":
        assert "--help" in run(name, "--help")
assert '"$schema"' in run("schema") and '"openapi"' in run("schema", "--openapi")
"""


def test_it_imports_neither_tensors_nor_network() -> None:
    said = f"{READ}{COMMANDS}\nprint(*({HEAVY} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not found.stdout.split()
