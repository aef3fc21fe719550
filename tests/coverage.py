"""Lines and refusals that the tests reach: `python -m tests.coverage` runs all tests and compares with before.

tests/covered.txt has the number of unreached lines of each file of the product; tests/refusals.txt every error that
a test provokes, by its type and the text in its `raise`. Neither may shrink: a line that is no longer
reached, or a refusal that is no longer provoked, fails. `--store` keeps the result.
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
COVERED, REFUSALS = ROOT / "tests/covered.txt", ROOT / "tests/refusals.txt"
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
    """Runs, compares and prints what was lost; exit code 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--store", action="store_true", help="keeps what was found, whatever it is")
    given, more = parser.parse_known_args()
    lines = measured(more)
    now, provoked = missed(lines), refusals(lines)
    lost = [f"{name}: {count} lines unreached" for name, count in now.items() if count > _stored().get(name, 0)]
    lost += [f"no longer provoked: {said}" for said in sorted(set(REFUSALS.read_text().splitlines()) - provoked)]
    if given.store:
        COVERED.write_text("".join(f"{count:4d} {name}\n" for name, count in now.items()))
        REFUSALS.write_text("".join(f"{said}\n" for said in sorted(provoked)))
    print("\n".join(lost), f"\n{sum(now.values())} lines unreached, {len(provoked)} refusals provoked")
    sys.exit(bool(lost) and not given.store)


def _stored() -> dict[str, int]:
    pairs = (line.split() for line in COVERED.read_text().splitlines())
    return {name: int(count) for count, name in pairs}


if __name__ == "__main__":
    main()
