"""Derives a protocol's default configuration from a given one: same data, labels, rows and length."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from colonnade.common.config.models import ModelConfig, precision_of
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.dump import relocated
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import share_template
from colonnade.search.comparison.subject import Subject
from colonnade.search.space import Tree

_AGREED = ("id", "task", "classes", "targets", "loss", "epochs", "rounds", "batch", "shuffle", "seed", "rows", "stop")
"""Keys of `federation` that all protocols take from the given configuration."""
_OF_SERVER = ("class_weights", "extra_metrics", "device")
_OF_PARTY = ("device",)
_LAYOUT = ("parties", "server", "align", "keys", "evaluate", "timeouts", "checkpoint", "protocol", "benchmark")
"""Keys of `federation` that have no influence here, or are always replaced: not worth a mention."""

COLUMNS_OF_SERVER = "server_columns"
"""Party that holds the server's columns, in protocols whose server has none."""

EPSILON, DELTA = 8.0, 1e-5
"""Noise of a protocol that needs `federation.privacy`, for a row's own embeddings."""

_ROUNDS = 100  # at most, each of all training rows
_BLINDED = 3  # least number of parties for masked sums
_MODEL: TypeAdapter[Any] = TypeAdapter(ModelConfig)


@dataclass(frozen=True)
class ProtocolSetup:
    """Configuration of a protocol.

    Args:
        tree: as in a file, over the prepared data.
        notes: settings beyond the protocol's defaults.
    """

    tree: Tree
    notes: tuple[str, ...]


@dataclass(frozen=True)
class GivenSetup:
    """The configuration that all protocols share.

    Args:
        tree: content of the file, with `every_party` merged into the parties.
        base: folder that its paths are relative to.
        keep_models: whether to use models and heads of the file too.
        epsilon: budget of a protocol that needs `federation.privacy`.
    """

    tree: Tree
    base: Path
    subject: Subject
    keep_models: bool = False
    epsilon: float = EPSILON

    @classmethod
    def of(
        cls, tree: Mapping[str, Any], base: Path, subject: Subject, *, keep_models: bool, epsilon: float
    ) -> GivenSetup:
        return cls(relocated(share_template(dict(tree)), base), base, subject, keep_models, epsilon)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Keys of the file that only its own protocol has, which no run uses."""
        federation, server = self.tree["federation"], self.tree.get("server") or {}
        found = [f"federation.{key}" for key in federation if key not in (*_AGREED, *_LAYOUT)]
        if isinstance(federation.get("protocol"), dict) and len(federation["protocol"]) > 1:
            found.append("federation.protocol's keys")
        kept = (*_OF_SERVER, "labels", "active", *(("head",) if self.keep_models else ()))
        found += [f"server.{key}" for key in server if key not in kept and key not in _MEMBER]
        parties = self.tree.get("parties") or {}
        kept = (*_OF_PARTY, "data", *(("model", "head") if self.keep_models else ()))
        if "weight" in (server.get("labels") or {}):
            found.append("server.labels.weight")
        keys = dict.fromkeys(key for own in parties.values() for key in (own or {}))
        return (*found, *(f"parties.{key}" for key in keys if key not in kept and key not in _MEMBER))

    def of_protocol(self, name: str) -> ProtocolSetup:
        """Configures a protocol with its defaults; refuses data that its contract excludes."""
        notes: list[str] = []
        members, active = self._members(name, notes)
        federation: Tree = {
            **{key: copy.deepcopy(value) for key, value in self.tree["federation"].items() if key in _AGREED},
            "protocol": {"name": name},
            "parties": list(members),
        }
        typed = CONTRACTS[name].config.typed
        made: Tree = {"federation": federation, "server": self._server(active, typed=typed)}
        made["parties"] = {party: self._party(party, origin, typed=typed) for party, origin in members.items()}
        self._fit(name, made, notes)
        if self.keep_models:
            notes.append("models of the file")
        parse(made)
        return ProtocolSetup(made, tuple(notes))

    def _members(self, name: str, notes: list[str]) -> tuple[dict[str, str], str]:
        """The parties, each with the member whose columns it has; and the member whose columns the server has."""
        holders = list(self.subject.shapes)
        own = SERVER if holders[0] == SERVER else ""
        rest = {party: party for party in holders if party != SERVER}
        if CONTRACTS[name].config.active:
            if own:
                return rest, own
            if len(holders) < 2:
                raise ConfigError(
                    f"{name}: the server needs columns of its own beside those of a party, and there is one party",
                    hint="add server.active, or a party",
                )
            notes.append(f"the server has the columns of {holders[0]}")
            return {party: party for party in holders[1:]}, holders[0]
        if own:
            notes.append(f"the server's columns are those of a party, {COLUMNS_OF_SERVER}")
            return {COLUMNS_OF_SERVER: SERVER, **rest}, ""
        return rest, ""

    def _server(self, active: str, *, typed: bool) -> Tree:
        given = self.tree["server"]
        kept = (*_OF_SERVER, *(("head",) if self.keep_models else ()))
        made = {key: copy.deepcopy(given[key]) for key in kept if key in given}
        made["labels"] = self.subject.labels
        if active:
            made["active"] = {"data": self.subject.data(active, typed=typed), **self._models(active, ("model",))}
        return made

    def _party(self, party: str, origin: str, *, typed: bool) -> Tree:
        given = (self.tree["parties"] or {}).get(party) or {}
        kept = {key: copy.deepcopy(given[key]) for key in _OF_PARTY if key in given}
        data = self.subject.data(origin, typed=typed)
        return {**kept, "data": data, **self._models(origin, ("model", "head"))}

    def _models(self, origin: str, keys: tuple[str, ...]) -> Tree:
        """A member's models in the file, if they are kept."""
        given = self.tree["server"].get("active") if origin == SERVER else self.tree["parties"].get(origin)
        return {key: copy.deepcopy(given[key]) for key in keys if self.keep_models and key in (given or {})}

    def _fit(self, name: str, made: Tree, notes: list[str]) -> None:
        """Adds settings that a protocol requires."""
        federation, protocol, parties = made["federation"], made["federation"]["protocol"], made["parties"]
        widest = max(math.prod(shape) for shape in self.subject.shapes.values())
        if CONTRACTS[name].config.full_batch:
            federation["rounds"] = min(federation.get("rounds") or _ROUNDS, _ROUNDS)
            federation["epochs"] = 0
            notes.append(f"{federation['rounds']} rounds of all training rows")
        if name == "fedvs":
            protocol["columns"] = max(4096, 2 * widest + 1)  # powers and the bias
        if name == "centralized":
            protocol["columns"] = max(1024, widest)
        if name == "linear_admm":
            for party in parties.values():
                party.pop("model", None)
        if not CONTRACTS[name].config.ranks:
            members = (*parties.values(), made["server"].get("active") or {})
            models = [own["model"] for own in members if isinstance(own.get("model"), dict)]
            short = [model for model in models if precision_of(_MODEL.validate_python(model)) == "bfloat16"]
            for model in short:
                del model["precision"]
            if short:
                notes.append("model.precision: float32, as the protocol needs")
        if CONTRACTS[name].config(name=name).blinded and len(parties) < _BLINDED:
            protocol["aggregate"] = "clear"
            notes.append("aggregate: clear, for fewer than three parties")
        if CONTRACTS[name].exchange.shares_labels and made["server"].pop("class_weights", "none") != "none":
            notes.append("no class weights: parties compute the loss themselves")
        if CONTRACTS[name].config.cards and made["server"].pop("class_weights", "none") != "none":
            notes.append("no class weights: points stand for odds in the table")
        if name == "vfl_afe":
            federation["privacy"] = {"mechanism": "adaptive", "clip": 1.0, "epsilon": self.epsilon, "delta": DELTA}
            notes.append(f"privacy: epsilon {self.epsilon:g} of a row's own embeddings, delta {DELTA:g}")


_MEMBER = ("identity", "threads", "metrics", "health", "trackers", "listen", "connect", "revoked", "chaos", "capture")
"""Keys of members about processes and records: not worth a mention."""
