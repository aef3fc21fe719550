"""`colonnade deal`: one folder per member of a federation, with only its own configuration, keys and data.

A folder holds all that its member needs on its own machine: `config.yaml`, `keys/`, `data/`. The dealer sees
everything, so this is for demos and experiments: real parties bring their own data and keys.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet
from pydantic import TypeAdapter

from colonnade.common.config.alignment import refuse_aligned
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.members import Address, Config
from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.names import LOOPBACK, SERVER
from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats.arrow_table import of_features
from colonnade.common.data.formats.tensors import columns_bytes, labels_bytes
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import partition
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.parsing.dump import config_tree, yaml_text
from colonnade.common.parsing.file import load
from colonnade.common.run.files import write_durably
from colonnade.common.run.run_folder import describe_source
from colonnade.launcher.readiness import check_members, refuse_tables
from colonnade.launcher.scratch import scratch
from colonnade.reports.console.outputs import csv_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import encoded_rows
from colonnade.server.privacy import digest_of
from colonnade.server.training.context import check_labels

_STAMP = "dealt.json"
_LASTING = ("scale", "noise", "missing", "unseen", "store")  # keys of `data` that apply to the dealt columns too
_REQUESTED = 100  # ids in the server's ids.csv
_AGAIN = "choose another --out, or remove the folder (with Docker Compose: `down --volumes`) and deal again"
_CODE = re.compile(r"(.+\.py):\w+")


@dataclass(frozen=True)
class DealTerms:
    """Settings of the members outside the configuration.

    Args:
        connect: HOST:PORT that parties dial; the server listens on that port on every interface.
        owner: user and group that own the dealt files; None for the calling user.
    """

    connect: str
    days: int
    owner: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        try:
            if not TypeAdapter(Address).validate_python(self.connect):
                raise ValueError
        except ValueError:
            raise InputError(
                f"--connect {self.connect}: expected HOST:PORT, a port of 1 to 65535",
                hint="for example labels.example.org:7400 or [2001:db8::7]:7400",
            ) from None

    @property
    def host(self) -> str:
        """Host part of `connect`, without brackets."""
        return self.connect.rpartition(":")[0].strip("[]")

    @property
    def listen(self) -> str:
        """Every interface; both IPv4 and IPv6 if an IPv6 address is dialled."""
        every = "[::]" if ":" in self.host else "0.0.0.0"  # noqa: S104  # parties are elsewhere
        return f"{every}:{self.connect.rpartition(':')[2]}"


def read_owner(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    if (found := re.fullmatch(r"(\d+)(?::(\d+))?", text)) is None:
        raise InputError(f"--owner {text}: expected UID or UID:GID", hint="one or two numbers, as `id` prints them")
    return int(found[1]), int(found[2] or found[1])


def deal(file: Path, sets: tuple[str, ...], out: Path, terms: DealTerms) -> None:
    """Deals a federation. A folder dealt from the same configuration stays as it is."""
    config = load(file, sets)
    check_members(config, str(file))
    for name, party in config.parties.items():
        if getattr(party.data, "contents", None):
            raise InputError(
                f"parties.{name}.data has columns of images or texts, which are not dealt",
                hint="start the members with `server` and `client`, each on its own table",
            )
    refuse_tables(config, file.parent.resolve())
    refuse_aligned(config.federation.align, "dealing one configuration out")
    tree = config_tree(config)
    stamp = hashlib.sha256(json.dumps([tree, terms.connect]).encode()).hexdigest()
    before = _dealt(out, stamp, config.federation.id)
    if before is None:
        _check_places(out, config)
    try:
        read = _Dealing(config, copy.deepcopy(tree), file.parent.resolve(), out, terms, dry=True)
        read.deal_members()
        if before is not None:
            _refuse_other_tables(out, before, read.tables)
            console.say(f"{out}: {config.federation.id} was dealt already, it is left as it is")
            return
        _Dealing(config, tree, file.parent.resolve(), out, terms).go()
        made = {"id": config.federation.id, "sha256": stamp, "tables": read.tables}
        write_durably(out / _STAMP, json.dumps(made).encode(), files.PRIVATE)
    except OSError as failed:
        raise EnvironmentFault(
            f"cannot deal into {out}: {failed.filename}: {failed.strerror}",
            hint="remove what an earlier attempt has left there, or choose another --out",
        ) from failed


def _dealt(out: Path, stamp: str, name: str) -> dict[str, Any] | None:
    """The record of the folder if it was dealt from this configuration; None if nothing was dealt."""
    try:
        found: dict[str, Any] = json.loads((out / _STAMP).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as torn:
        raise InputError(f"{out / _STAMP} cannot be read: {torn}", hint="remove the folder, and deal again") from None
    if found.get("sha256") == stamp:
        return found
    other = "another configuration" if found.get("id") == name else f"{found.get('id')!r}, another federation"
    raise InputError(
        f"{out} was dealt from {other}",
        hint=_AGAIN,
    )


def _refuse_other_tables(out: Path, before: dict[str, Any], tables: dict[str, str]) -> None:
    dealt = before.get("tables", tables)  # folders of 0.2 have no digests
    if changed := [name for name, digest in tables.items() if dealt.get(name) != digest]:
        raise InputError(f"{out} was dealt from another table of {' and of '.join(changed)}", hint=_AGAIN)


def _check_places(out: Path, config: Config) -> None:
    """Refuses a folder prepared with places, such as mounted volumes, unless there is exactly one per member."""
    members = {SERVER, *config.federation.names}
    places = {path.name for path in out.iterdir() if path.is_dir()} - {"ca"} if out.is_dir() else set()
    if not (out / SERVER).is_dir() or places == members:
        return
    missing, idle = sorted(members - places), sorted(places - members)
    raise InputError(
        f"{out} has places for {', '.join(sorted(places))}, and {config.federation.id} is of "
        f"{', '.join(sorted(members))}: " + (f"none for {missing[0]}" if missing else f"{idle[0]} would be idle"),
        hint="take a configuration of as many parties, or an overlay that adds them (deploy/compose.protocols)",
    )


@dataclass(frozen=True)
class _Dealing:
    config: Config
    tree: dict[str, Any]
    base: Path
    out: Path
    terms: DealTerms
    dry: bool = False  # reads and checks everything, and writes nothing
    copied: dict[tuple[str, str], Path] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)  # digests of what was read, by member

    def go(self) -> None:
        files.make_folder(self.out)
        self._make_keys()
        self.deal_members()
        if self.terms.owner is not None:
            for name in (SERVER, *self.config.federation.names):
                _give(self.out / name, *self.terms.owner)

    def deal_members(self) -> None:
        self._deal_server()
        for name in self.config.federation.names:
            self._deal_party(name)

    def _make_keys(self) -> None:
        names = self.config.federation.names
        hosts = dict.fromkeys((self.terms.host, *LOOPBACK))
        with scratch() as folder:
            made = folder / "federation"
            pins = make_federation(made, names, list(hosts), days=self.terms.days)
            for name in (SERVER, *names):
                _copy_keys(made / name, self.out / name / "keys")
            _copy_keys(made / "ca", self.out / "ca")
        self.tree["federation"]["server"] = pins.pop(SERVER)
        self.tree["federation"]["parties"] = pins

    def _deal_server(self) -> None:
        assert self.config.server is not None  # members were checked
        own, task = self.tree["server"], self.config.federation.task
        labels = load_labels(self.config.server.labels, self.base, task)
        check_labels(labels, self.config.federation)
        name = describe_source(own["labels"])
        self._write_ids(own["labels"].get("key") or "id", labels)
        self.tables[SERVER] = digest_of(labels)
        own["labels"] = {**self._write_labels(own["labels"], labels), "name": name}
        own["listen"] = self.terms.listen
        if self.config.server.active is not None:
            self._deal_columns(SERVER, self.config.server.active.data, own["active"], "columns of the server")
        if self.config.server.revoked is not None:
            own["revoked"] = self._copy(SERVER, str(self.config.server.revoked))
        self._write_config(SERVER, own, {"server": own})
        self._say(f"{SERVER}: {len(labels.values)} labels")

    def _deal_party(self, name: str) -> None:
        own = self.tree["parties"][name]
        own["connect"] = self.terms.connect
        shape = self._deal_columns(name, self.config.parties[name].data, own, name)
        self._write_config(name, own, {"parties": {name: own}})
        self._say(f"{name}: {encoded_rows(shape[0], shape[1:])}")

    def _deal_columns(self, name: str, data: DataConfig, own: dict[str, Any], of: str) -> tuple[int, ...]:
        features = load_features(data, self.config.federation.party_index(name), self.base)
        self.tables[of] = features.fingerprint
        kept = {key: value for key, value in own["data"].items() if key in _LASTING}
        own["data"] = {**self._write_columns(name, own["data"], features), **kept}
        return tuple(features.values.shape)

    def _write_labels(self, source: dict[str, Any], labels: LabelColumn) -> dict[str, Any]:
        if labels.ids is None and labels.weights is None:
            return self._write(SERVER, "labels", "safetensors", labels_bytes(labels))
        # a plug-in's source may have neither a key nor a label
        key = None if labels.ids is None else source.get("key") or "key"
        names, weight = source.get("label") or "label", source.get("weight")
        names = [names] if isinstance(names, str) else names
        kept = {"key": key, "weight": weight, "positive": source.get("positive")}
        return {
            **self._write(SERVER, "labels", "parquet", label_table_bytes(labels, key, names, weight)),
            "label": names if len(names) > 1 else names[0],
            **{name: value for name, value in kept.items() if value is not None},
        }

    def _write_ids(self, key: str, labels: LabelColumn) -> None:
        """Writes ids of test rows for `colonnade predict RUN --ids`: keys, or row numbers if there are no keys."""
        federation = self.config.federation
        parts = partition(len(labels.values), labels.official_test, federation.rows, federation.seed)
        rows = parts.test[:_REQUESTED].tolist()
        ids = ([row if labels.ids is None else labels.ids[row]] for row in rows)
        self._put(SERVER, "ids.csv", csv_text([[key], *ids]).encode())

    def _write_columns(self, name: str, source: dict[str, Any], features: Features) -> dict[str, Any]:
        if not features.fields:
            return self._write(name, "columns", "safetensors", columns_bytes(features))
        key = source.get("key") or (None if features.ids is None else "key")
        return {
            **self._write(name, "columns", "parquet", table_bytes(features, key)),
            **({} if key is None else {"key": key}),
            "types": {field.name: field.kind for field in features.fields},
        }

    def _write(self, name: str, what: str, kind: str, content: bytes) -> dict[str, Any]:
        path = f"data/{what}.{kind}"
        self._put(name, path, content)
        return {"source": kind, "path": path}

    def _write_config(self, name: str, own: dict[str, Any], section: dict[str, Any]) -> None:
        own["identity"] = "keys"
        self._take_code_along(name, own)
        text = yaml_text({"federation": self.tree["federation"], **section})
        self._put(name, "config.yaml", text.encode())

    def _take_code_along(self, name: str, node: Any) -> None:
        """Copies files of custom models next to the configuration."""
        if not isinstance(node, dict):
            return
        if isinstance(file := node.get("file"), str) and (found := _CODE.fullmatch(file)):
            node["file"] = f"./{self._copy(name, found[1])}{file.removeprefix(found[1])}"
        for below in node.values():
            self._take_code_along(name, below)

    def _copy(self, name: str, path: str) -> str:
        source = (self.base / Path(path).expanduser()).resolve()
        if (before := self.copied.setdefault((name, source.name), source)) != source:
            raise InputError(f"{name} uses {before} and {source}, which would be one file", hint="rename one of them")
        self._put(name, source.name, source.read_bytes())
        return source.name

    def _put(self, name: str, path: str, content: bytes) -> None:
        if self.dry:
            return
        place = self.out / name / path
        place.parent.mkdir(mode=0o700, exist_ok=True)
        write_durably(place, content, files.PRIVATE)

    def _say(self, line: str) -> None:
        if not self.dry:
            console.say(line)


def _copy_keys(made: Path, kept: Path) -> None:
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in made.iterdir():
        write_durably(kept / path.name, path.read_bytes(), files.PRIVATE if path.name == "key.pem" else files.PUBLIC)


def _give(folder: Path, user: int, group: int) -> None:
    """Changes the owner bottom-up, since this process may lose access to a folder by the change."""
    for path, _, names in os.walk(folder, topdown=False):
        for name in names:
            os.chown(Path(path) / name, user, group)
        Path(path).chmod(0o700)
        os.chown(path, user, group)


def table_bytes(features: Features, key: str | None) -> bytes:
    """A Parquet file of typed columns, with their keys under the name `key` if they have any."""
    return _written(_with_keys(of_features(features), features.ids, key))


def label_table_bytes(labels: LabelColumn, key: str | None, names: Sequence[str], weight: str | None = None) -> bytes:
    """A Parquet file of keys, the classes' names or the numbers of a regression under `names`, and weights."""
    if labels.classes:
        words = pa.DictionaryArray.from_arrays(pa.array(labels.values.numpy()), pa.array(labels.classes, pa.string()))
        columns = {names[0]: words.cast(pa.string())}
    else:
        columns = {name: pa.array(labels.values[:, place].numpy()) for place, name in enumerate(names)}
    if labels.weights is not None and weight is not None:
        columns[weight] = pa.array(labels.weights.numpy())
    return _written(_with_keys(pa.table(columns), labels.ids, key))


def _with_keys(table: pa.Table, ids: Sequence[str] | None, key: str | None) -> pa.Table:
    return table if ids is None or key is None else table.add_column(0, key, pa.array(list(ids), pa.string()))


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa_parquet.write_table(table, sink)
    written: bytes = sink.getvalue().to_pybytes()
    return written
