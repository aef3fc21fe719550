"""What processes, configurations and commands do not import: each import costs every member or command its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.common.models.test_optimiser import VARIANTS
from tests.support.patience import PATIENCE

CODE = f"""
import sys, torch

def refuse(*names):
    print(*(name for name in sys.modules if name.startswith(names)))

import colonnade.server.member.training, colonnade.client.member.process
refuse("prometheus_client", "grpc_health.v1")  # for endpoints, which are off by default
import colonnade.cli.main, colonnade.cli.run.up
refuse("colonnade_lab")

from pydantic import TypeAdapter
from colonnade.common.models.optimiser import OptimiserConfig, build_optimiser
from colonnade.common.run.own_settings import own_settings
with own_settings():
    pass
layer = torch.nn.Linear(2, 2)
for variant in {VARIANTS}:
    optimiser = build_optimiser(TypeAdapter(OptimiserConfig).validate_python(variant), layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimiser.step(); optimiser.zero_grad(); optimiser.load_state_dict(optimiser.state_dict())
refuse("torch._dynamo")  # the compiler

import colonnade.reports.explanation.write, colonnade_lab.commands.reproduce, colonnade_lab.commands.compare
refuse("matplotlib")  # before a picture is drawn
"""


@pytest.mark.slow
def test_no_process_imports_what_it_may_never_use() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert not done.stdout.split()


def test_the_image_is_built_without_the_laboratory() -> None:
    """Of the folders that .dockerignore names."""
    assert "!lab" not in (ROOT / ".dockerignore").read_text()


ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "numpy", "grpc", "scipy", "pyarrow"}
READ = """
import sys
import colonnade.common.run.run_folder
assert "yaml" not in sys.modules, "names of a run's folder need no parser"

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
