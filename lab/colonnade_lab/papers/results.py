"""Results that are kept, in results.json by default: one record a run and seed. What is there is not run again."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from colonnade.common.errors import InputError
from colonnade.common.runtime.durable import alone_in
from colonnade.reports.console.outputs import write_text
from colonnade_lab.papers.code import code_digest
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.running import Job

NAME = "results.json"


class KeptResult(BaseModel):
    """A record, the digest of the configuration that it is of, and that of the code that made it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    record: RunRecord
    code: str | None = None

    @property
    def made_by(self) -> str:
        """Version that made it, and the digest of its code; older results have none."""
        version = self.record.version or "an unknown version"
        return f"{version}, code {self.code}" if self.code else version


_FILE = TypeAdapter(dict[str, KeptResult])


class Results:
    """All records of a folder.

    Args:
        folder: holds the file, or will.
        name: of the file.

    Raises:
        InputError: the file is there and cannot be read.
    """

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.path = folder / name
        self._kept = self._read()

    def get(self, job: Job) -> RunRecord | None:
        """Record of a run with this configuration; None if there is none, or it is of another one."""
        kept = self._found(job)
        return None if kept is None else kept.record

    def made_by(self, job: Job) -> str:
        """The version and code that made a record; "" if there is none. A result of another code counts as well."""
        kept = self._found(job)
        return "" if kept is None else kept.made_by

    def seeds(self, paper: str, *, wire: bool = False) -> int:
        """One more than the highest seed that a run of a paper's list has here; 0 if there is none."""
        keys = (key.removesuffix("/wire") for key in self._kept if key.endswith("/wire") == wire)
        found = [key.rpartition("/")[2] for key in keys if key.startswith(f"{paper}/")]
        return max((int(seed) + 1 for seed in found if seed.isdecimal()), default=0)

    def keep(self, job: Job, record: RunRecord) -> None:
        """Stores a record on the disk, and keeps those that other commands have stored there since.

        Raises:
            InputError: the file is there and can be read no longer.
            EnvironmentFault: it cannot be written.
        """
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
    """Error of a line; names the record if one is malformed."""
    if not isinstance(wrong, ValidationError):
        return str(wrong).splitlines()[0]
    first = wrong.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _key(job: Job) -> str:
    return f"{job.paper}/{job.name}/{job.seed}" + ("/wire" if job.wire else "")
