"""Lines and refusals that the tests reach: `python -m tests.coverage` runs all tests and compares two trees.

A result has the number of unreached lines of each file of the product, and every error that a test provokes, by its
type and the text in its `raise`: `--out FILE` writes it, and `--against FILE` fails if a line or a refusal of another
tree's result is no longer reached. A change of tests is judged so; no result is kept in the repository, where it would
be out of date at the next change.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.rooms import CODE

ROOT = Path(__file__).parents[1]
SETTINGS = f"""
[run]
source = {",".join(CODE)}
omit = common/wire/_generated/*
branch = true
parallel = true
sigterm = true
patch = subprocess,fork,_exit
disable_warnings = no-data-collected,module-not-measured,module-not-imported,couldnt-parse
"""


def measured(more: list[str]) -> dict[str, set[int]]:
    """The lines that a run of all tests reaches, and those that it does not, as negative numbers, by file."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "coverage.ini"
        settings.write_text(f"{SETTINGS}data_file = {folder}/data\n")
        coverage = [sys.executable, "-m", "coverage"]
        rc = f"--rcfile={settings}"
        failed = subprocess.run(
            [*coverage, "run", rc, "-m", "pytest", "-o", "timeout=900", *more], cwd=ROOT, check=False
        )
        subprocess.run([*coverage, "combine", rc, "-q"], cwd=ROOT, check=True)
        subprocess.run([*coverage, "report", rc, "--skip-covered"], cwd=ROOT, check=False)
        subprocess.run([*coverage, "json", rc, "-q", "-o", f"{folder}/lines.json"], cwd=ROOT, check=True)
        found = json.loads((Path(folder) / "lines.json").read_text())["files"]
    if failed.returncode:
        print("tests have failed: what they reach says little")
    return {
        name: {*lines["executed_lines"], *(-line for line in lines["missing_lines"])} for name, lines in found.items()
    }


def missed(lines: dict[str, set[int]]) -> dict[str, int]:
    """Number of lines of a file that no test reaches; fully reached files are left out."""
    counts = {name: sum(line < 0 for line in found) for name, found in lines.items()}
    return {name: count for name, count in sorted(counts.items()) if count}


def refusals(lines: dict[str, set[int]]) -> set[str]:
    """Every `raise` of an error of ours that a test reaches: the type, and the text as the source has it."""
    found = set()
    for name, reached in lines.items():
        for line, said in raised(ast.parse((ROOT / name).read_text())):
            if line in reached:
                found.add(said)
    return found


def raised(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The `raise` statements that make an error: line, type and the text's fixed pieces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = (part.value for part in ast.walk(node.exc) if isinstance(part, ast.Constant))
            words = " … ".join(text.strip() for text in texts if isinstance(text, str) and text.strip())
            yield node.lineno, f"{ast.unparse(node.exc.func)}: {words}".replace("\n", " ").strip()


def main() -> None:
    """Runs, prints what is reached and what was lost, and writes it; exit code 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a file for the result")
    parser.add_argument("--against", type=Path, help="the result of another tree, of which nothing may be lost")
    given, more = parser.parse_known_args()
    lines = measured(more)
    now, provoked = missed(lines), refusals(lines)
    before = json.loads(given.against.read_text()) if given.against else {"unreached": now, "provoked": []}
    old = before["unreached"]
    lost = [f"{name}: {count} lines unreached" for name, count in now.items() if count > old.get(name, 0)]
    lost += [f"no longer provoked: {said}" for said in sorted(set(before["provoked"]) - provoked)]
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"unreached": now, "provoked": sorted(provoked)}, indent=1) + "\n")
    print("\n".join(lost), f"\n{sum(now.values())} lines unreached, {len(provoked)} refusals provoked")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
