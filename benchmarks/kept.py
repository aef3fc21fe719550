"""The file that stores results as they come, so that an interrupted bench can continue."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.report import Figure, Result
from colonnade.common.run.durable import write_durably


class Kept:
    """Results by benchmark; a path of None keeps them in memory."""

    def __init__(self, path: Path | None, machine: str) -> None:
        self._path, self.machine = path, machine
        self.results: dict[str, Result] = {}

    def read(self) -> None:
        """Reads an earlier bench's results, if any. Raises SystemExit for another file or machine."""
        if self._path is None or not self._path.is_file():
            return
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            machine = content["machine"]
            results = {name: _result(tree) for name, tree in content["results"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            raise SystemExit(f"{self._path}: no results of a bench ({wrong!r}); remove it, or name another") from None
        if machine != self.machine:
            raise SystemExit(f"{self._path}: taken on {machine}, and this is {self.machine}; name another file")
        self.results = results

    def done(self, name: str) -> bool:
        """True if a benchmark has completed; a failed or skipped one has not."""
        return name in self.results and not (self.results[name].failed or self.results[name].skipped)

    def add(self, name: str, result: Result) -> None:
        self.results[name] = result
        if self._path is not None:
            tree = {"machine": self.machine, "results": {each: asdict(kept) for each, kept in self.results.items()}}
            write_durably(self._path, json.dumps(tree, indent=1).encode())


def _result(tree: dict[str, object]) -> Result:
    figures = tree.pop("figures")
    return Result(figures=tuple(Figure(**figure) for figure in figures), **tree)  # type: ignore[arg-type, attr-defined]
