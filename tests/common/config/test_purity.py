"""A configuration is read without a tensor library: imports of its modules, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "code",
    ["import colonnade.common.config.federation", "import colonnade.common.config.members", READ],
    ids=["agreed", "whole", "read"],
)
def test_it_imports_neither_tensors_nor_network(code: str) -> None:
    said = f"{code}\nimport sys\nprint(*({HEAVY} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not found.stdout.split()
