"""A configuration is read without a tensor library: imports of its modules, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "grpc", "scipy"}


@pytest.mark.parametrize("module", ["colonnade.common.config.federation", "colonnade.common.config.members"])
def test_it_imports_neither_tensors_nor_network(module: str) -> None:
    code = f"import sys, {module} as _; print(*({HEAVY} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not found.stdout.split()
