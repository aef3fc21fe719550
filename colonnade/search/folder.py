"""Folder of a search or a cross-validation: lock, identity and files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.config.federation import check_id
from colonnade.common.config.members import Config
from colonnade.common.errors import InputError
from colonnade.common.parsing.dump import yaml_text
from colonnade.common.parsing.file import parse
from colonnade.common.run.files import refuse_foreign, write_kept
from colonnade.common.run.run_folder import MemberFolder, read_record
from colonnade.launcher.configuration import GivenConfig, naming_tables
from colonnade.launcher.folder_lock import hold
from colonnade.reports.console.outputs import make_folder, refuse_unwritable
from colonnade.search.folds import table_digests

Tables = Mapping[str, Any]
"""Tables by member, as for `colonnade.simulate`."""

_LOCK = ".lock"


def place_of(given: GivenConfig, out: str | Path | None, kind: str) -> Path:
    """The requested folder, or runs/ID-KIND. Refuses an id that is no folder name."""
    federation = given.tree.get("federation")
    id = str(federation.get("id", kind)) if isinstance(federation, Mapping) else kind
    return Path(out or Path("runs") / f"{check_id(id)}-{kind}").resolve()


def digest(content: Any) -> str:
    """SHA-256 of keys and values, in hex."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class SearchFolder:
    """A folder that one process works in. Files are named by `kind`: `tune` or `cv`."""

    path: Path
    kind: str

    @property
    def record(self) -> Path:
        return self.path / f"{self.kind}.json"

    @property
    def tables(self) -> Path:
        """Folder of tables that were given in memory."""
        return self.path / "tables"

    @contextmanager
    def with_tables(self, given: GivenConfig) -> Iterator[None]:
        """Names tables that were given in memory in errors; removes them after one, unless there is a record."""
        try:
            with naming_tables(given.places(self.tables)):
                yield
        except BaseException:
            if not self.record.exists():
                shutil.rmtree(self.tables, ignore_errors=True)
            raise

    @property
    def aligned(self) -> Path:
        return self.path / f"{self.kind}-rows.safetensors"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes and locks the folder; removes it again if it stays empty."""
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        make_folder(self.path)
        refuse_unwritable(self.path)
        if MemberFolder(self.path).begun:
            raise InputError(f"{self.path} holds a run", hint="choose another --out")
        refuse_foreign(self.path)
        with hold(
            self.path / _LOCK, "end it first, or choose another --out; several machines share trials by --storage"
        ):
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # the folder is not empty
                    if [path.name for path in self.path.iterdir()] == [_LOCK]:
                        (self.path / _LOCK).unlink()
                    for path in made:
                        path.rmdir()

    def settle(self, given: GivenConfig, identity: Mapping[str, str]) -> dict[str, Any]:
        """Returns the folder's record, or a new unwritten one; both have a `place`, and the digests of all `tables`.

        Tables that were given in memory are in the folder afterwards.

        Raises:
            InputError: the folder belongs to another search or other tables; the message names the differing parts.
            DataError: a table cannot be read.
        """
        fresh = self.path / ".tables"
        try:
            given.write_tables(fresh)
            with naming_tables(given.places(fresh)):
                tables = table_digests(parse(given.placed(fresh)), given.base)
            found = self._agreed(identity, tables)
            if given.tables:
                shutil.rmtree(self.tables, ignore_errors=True)
                fresh.rename(self.tables)
            return found
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _agreed(self, identity: Mapping[str, str], tables: Mapping[str, str]) -> dict[str, Any]:
        found = read_record(self.record)
        if found is None:
            return {"of": dict(identity), "tables": dict(tables), "place": secrets.token_hex(8)}
        before, now = {**found.get("of", {}), **found.get("tables", {})}, {**identity, **tables}
        if differing := [key for key in now if before.get(key, now[key]) != now[key]]:
            raise InputError(
                f"{self.path} was begun with another {' and another '.join(differing)}",
                hint="give what it was begun with, choose another --out, or remove the folder",
            )
        if "tables" not in found:
            raise InputError(
                f"{self.path} was begun by an earlier version, which has not noted the tables that its results are of",
                hint="choose another --out, or remove the folder",
            )
        return found

    def write(self, record: Mapping[str, Any]) -> None:
        write_kept(self.record, (json.dumps(record, indent=2) + "\n").encode())


def write_config(path: Path, tree: Mapping[str, Any], comment: str) -> None:
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    text = yaml_text(tree, allow_unicode=True, width=120)
    write_kept(path, (head + text).encode())


def refuse_unvalidated(config: Config) -> None:
    """Refuses a configuration without validation rows, by which a search chooses."""
    if not config.federation.rows.validation:
        raise InputError(
            "there are no validation rows to search by: federation.rows.validation is 0",
            hint="set federation.rows.validation, say to 0.1; test rows are not for choosing",
        )


def refuse_fewer(**options: tuple[int | None, int]) -> None:
    """Refuses an option below its least value; None is no value."""
    for name, (value, least) in options.items():
        if value is not None and value < least:
            raise InputError(f"--{name} {value}: expected at least {least}")
