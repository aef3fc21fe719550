"""A digest of the source files that results depend on."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import colonnade

_ROOT = Path(colonnade.__file__).parent
_FOLDERS = ("client", "common", "server", "simulation")


@cache
def code_digest() -> str:
    """Digest of this process's code. The first call takes about a second and fixes it."""
    return digest_of(_ROOT)


def digest_of(root: Path) -> str:
    """Digest of the source files below `root` that a result may depend on: protocols, numerics, data, simulation.

    Comments, docstrings and layout do not count. Another minor version of Python gives another digest.
    """
    found = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            found.update(path.relative_to(root).as_posix().encode())
            found.update(ast.dump(_bare(ast.parse(path.read_text(encoding="utf-8")))).encode())
    return found.hexdigest()[:12]


def _bare(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _text(each)] or [ast.Pass()]
    return tree


def _text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
