"""Lines and files of the product, the laboratory, the benchmarks and the tests: `python tests/size.py [REVISION]`.

Beside the tree as it is on the disk stands the revision, by default the one at which the house began to shrink. Lines
are those of Python files, without generated ones; imports inside functions are counted in product and laboratory.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = "6cbb4a2f"
PARTS: Mapping[str, tuple[str, ...]] = {
    "product": (
        "server/", "client/", "common/", "colonnade/", "cli/", "launcher/", "simulation/", "reports/", "search/",
        "testing/",
    ),
    "laboratory": (
        "lab/colonnade_lab/", "attacks/", "reproduction/", "cli/research/attack", "cli/research/reproduce",
        "cli/research/frontier", "cli/research/compare.py",
    ),
    "benchmarks": ("benchmarks/",),
    "tests": ("tests/", "lab/tests/"),
}  # fmt: skip


def part_of(path: str) -> str:
    """The part with the longest prefix of the path; "" for none."""
    return max((len(prefix), part) for part, prefixes in (*PARTS.items(), ("", ("",))) for prefix in prefixes
               if path.startswith(prefix))[1]  # fmt: skip


def on_disk() -> Iterator[tuple[str, str]]:
    """Tracked and new files, links left out."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "*.py").splitlines()
    for path in listed:
        if (ROOT / path).is_file() and not (ROOT / path).is_symlink():
            yield path, (ROOT / path).read_text(encoding="utf-8")


def at(revision: str) -> Iterator[tuple[str, str]]:
    """Files of a revision."""
    for line in _git("ls-tree", "-r", "--format=%(objectmode) %(path)", revision).splitlines():
        mode, _, path = line.partition(" ")
        if path.endswith(".py") and mode != "120000":
            yield path, _git("show", f"{revision}:{path}")


def sizes(files: Iterator[tuple[str, str]]) -> dict[str, tuple[int, int, int]]:
    """Lines, files and imports inside functions of every part."""
    found = dict.fromkeys(PARTS, (0, 0, 0))
    for path, text in files:
        if (part := part_of(path)) and "_generated/" not in path:
            lines, count, inside = found[part]
            found[part] = lines + text.count("\n"), count + 1, inside + _inside(text)
    return found


def _inside(text: str) -> int:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    imports = {node.lineno for function in functions for node in ast.walk(function)
               if isinstance(node, ast.Import | ast.ImportFrom)}  # fmt: skip
    return len(imports)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main(revision: str) -> None:
    """Prints the table."""
    before, now = sizes(at(revision)), sizes(on_disk())
    print(f"{'':<12}{revision:>24}{'now':>24}")
    for part in PARTS:
        cells = [f"{lines:>9,} / {files:<4}{inside:>7}" for lines, files, inside in (before[part], now[part])]
        print(f"{part:<12}{cells[0]:>24}{cells[1]:>24}")

    folders = {path for path in _git("ls-tree", "-d", "--name-only", "HEAD").splitlines() if not path.startswith(".")}
    print("lines / files, imports inside functions;", f"{len(folders)} top-level folders")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else FIRST)
