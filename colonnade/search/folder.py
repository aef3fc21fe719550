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
from colonnade.common.run.files import refuse_foreign, write_kept
from colonnade.common.run.run_folder import MemberFolder, read_record
from colonnade.launcher.configuration import GivenConfig, naming_tables
from colonnade.launcher.folder_lock import hold
from colonnade.reports.console.outputs import make_folder, refuse_unwritable

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
        """Writes the tables that were given in memory; removes them after an error, unless there is a record."""
        try:
            given.write_tables(self.tables)
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

    def settle(self, identity: Mapping[str, str]) -> dict[str, Any]:
        """Returns the folder's record, or a new unwritten one; both have a `place`.

        Raises:
            InputError: the folder belongs to another search; the message names the differing parts.
        """
        found = read_record(self.record)
        if found is None:
            return {"of": dict(identity), "place": secrets.token_hex(8)}
        before = found.get("of", {})
        if differing := [key for key in identity if before.get(key) != identity[key]]:
            raise InputError(
                f"{self.path} was begun with another {' and another '.join(differing)}",
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
