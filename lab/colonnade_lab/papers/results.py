"""Stored results (results.json by default), one record per run and seed. Stored runs are not repeated."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

import colonnade
from colonnade.common.errors import InputError
from colonnade.common.run.files import alone_in
from colonnade.reports.console.outputs import write_text
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.running import Job

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


NAME = "results.json"


class KeptResult(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    record: RunRecord
    code: str | None = None

    @property
    def made_by(self) -> str:
        """Version and code digest that produced it; older results have no digest."""
        version = self.record.version or "an unknown version"
        return f"{version}, code {self.code}" if self.code else version


_FILE = TypeAdapter(dict[str, KeptResult])


class Results:
    """All records of a folder. Raises InputError if the file exists and cannot be read."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.path = folder / name
        self._kept = self._read()

    def get(self, job: Job) -> RunRecord | None:
        """Record of a run; None if there is none, or it is of another configuration."""
        kept = self._found(job)
        return None if kept is None else kept.record

    def made_by(self, job: Job) -> str:
        """Version and code that produced a record, "" if there is none. Results of other code count as well."""
        kept = self._found(job)
        return "" if kept is None else kept.made_by

    def seeds(self, paper: str, *, wire: bool = False) -> int:
        """One more than the highest stored seed of a paper's list; 0 if there is none."""
        keys = (key.removesuffix("/wire") for key in self._kept if key.endswith("/wire") == wire)
        found = [key.rpartition("/")[2] for key in keys if key.startswith(f"{paper}/")]
        return max((int(seed) + 1 for seed in found if seed.isdecimal()), default=0)

    def keep(self, job: Job, record: RunRecord) -> None:
        """Stores a record on disk, and keeps records that other commands have stored there since."""
        with alone_in(self.path.parent):
            made = KeptResult(digest=job.digest, code=code_digest(), record=record)
            self._kept = self._read() | {_key(job): made}
            tree = {key: self._kept[key].model_dump(mode="json", exclude_none=True) for key in sorted(self._kept)}
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tree.items())
            write_text(self.path, f"{{\n{lines}\n}}\n")

    def _found(self, job: Job) -> KeptResult | None:
        kept = self._kept.get(_key(job))
        return kept if kept is not None and kept.digest == job.digest else None

    def _read(self) -> dict[str, KeptResult]:
        if not self.path.is_file():
            return {}
        try:
            return _FILE.validate_python(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as wrong:
            hint = "name another folder with --out, or delete the file"
            raise InputError(f"{self.path}: {_said(wrong)}", hint=hint) from None


def _said(wrong: Exception) -> str:
    if not isinstance(wrong, ValidationError):
        return str(wrong).splitlines()[0]
    first = wrong.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _key(job: Job) -> str:
    return f"{job.paper}/{job.name}/{job.seed}" + ("/wire" if job.wire else "")
