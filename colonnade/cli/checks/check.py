"""`colonnade check`: finds errors before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from colonnade.cli.checks.columns import copies, described, hints_of_federation, hints_of_party
from colonnade.cli.checks.privacy import Made, drowned, estimated
from colonnade.cli.checks.sums import BinnedSums, Coding
from colonnade.client.member.identity import own_identity as party_identity
from colonnade.client.privacy.mechanisms import allowed
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.limits import DailyLimits, ForeignKeys
from colonnade.common.alignment.place import lasting
from colonnade.common.config.alignment import few_common, refuse_nothing, refuse_other_sizes
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ActiveConfig, Config, PartyConfig, ServerConfig, unused
from colonnade.common.config.models import HeadConfig, OwnConfig
from colonnade.common.config.privacy import PROPOSED
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.draws import own_draws
from colonnade.common.data.labels import LabelColumn, TargetScale
from colonnade.common.data.rows import Partition
from colonnade.common.data.sources import load_features, load_labels, prepare
from colonnade.common.errors import ConfigError, DataError, EnvironmentFault
from colonnade.common.models.build import bottom_model, build_head
from colonnade.common.models.probes import PROBE, ModelProbe, head_rows
from colonnade.common.parsing.error_messages import whose
from colonnade.common.parsing.file import load
from colonnade.common.protocols.fedvs import Config as CodedConfig
from colonnade.common.run.device import choose_device
from colonnade.launcher.readiness import check_trackers, refuse_labels_of_parties, refuse_policies
from colonnade.reports.console.screen import out
from colonnade.reports.words import counted, encoded_rows, listed
from colonnade.server.member.identity import own_identity as server_identity
from colonnade.server.member.planned import planned, which_model
from colonnade.server.training.classes import LabelParts, few_of_common, of_common
from colonnade.server.training.context import check_labels
from colonnade.server.training.fusion.active import active_features
from colonnade.simulation.contexts import refuse_other_rows


def check_identities(config: Config, base: Path) -> None:
    """Checks the identities that would otherwise be refused when a member starts or joins.

    Members without an `identity` are skipped: `up` makes throw-away keys. Raises ConfigError or IdentityError if a key
    or certificate cannot be used or is not the pinned one; names the member.
    """
    federation, server = config.federation, config.server
    named = [*config.parties.values(), *([] if server is None else [server])]
    if all(own.identity is None for own in named) and (server is None or server.revoked is None):
        return
    if server is not None and server.identity is not None:
        with whose(SERVER):
            server_identity(federation, server, base, secure=True)
    if server is not None and server.revoked is not None:
        with whose(SERVER):
            RevocationList(base / server.revoked)
    for name, party in config.parties.items():
        if party.identity is not None:
            with whose(name):
                party_identity(name, federation, party, base)


def in_parts(rows: Partition) -> str:
    return f"{len(rows.train)} train, {len(rows.validation)} validate, {len(rows.test)} test"


class Overlap:
    """Keys of the members whose tables have been read.

    Attributes:
        common: keys that all members have, in compared form; empty before `show`, or without an alignment.
    """

    def __init__(self, federation: FederationConfig) -> None:
        self._federation = federation
        self.common: frozenset[str] = frozenset()
        self._keys: dict[str, list[str]] = {}  # as they are compared

    def add(self, member: str, ids: Sequence[str] | None) -> None:
        """Adds a member's keys. Raises DataError if rows are matched by keys, and these cannot be used."""
        if self._federation.align == "none" and ids is None:
            return
        compared = [*map(self._federation.keys.normal, ids or ())]
        different = set(compared)
        if not different or "" in different or len(different) < len(compared):
            RowKeys.of(ids, self._federation.keys, member)  # raises
        self._keys[member] = compared

    def show(self) -> int | None:
        """Prints the number of rows common to all, if all have been read, and returns it; None where it is not known.

        Raises:
            DataError: there are none, or with `sorted` or without alignment the keys are not the same.
            InputError: there are fewer than a batch has.
        """
        align = self._federation.align
        if align == "none":
            self._refuse_others()
        elif set(self._keys) == {SERVER, *self._federation.names}:
            everyones = self._keys.values()
            if align == "sorted":
                refuse_other_sizes(align, tuple(self._keys), [len(keys) for keys in everyones])
            self.common = frozenset.intersection(*map(frozenset, everyones))
            common = len(self.common)
            refuse_nothing(align, common if align == "psi" or common == len(self._keys[SERVER]) else 0)
            parts = in_parts(Schedule(self._federation, common, 0).partition)
            out.say(f"{common} rows are common to all: {parts}")
            if doubt := few_common(common, [*map(len, everyones)]):
                out.warn(doubt)
            return common
        else:
            out.say("the number of rows common to all is known after alignment")
        return None

    def refuse_policies(self, config: Config, base: Path) -> None:
        """Refuses tables that a member's policy or daily limits refuse at any time. Raises ConfigError."""
        if self._federation.align == "none":
            return
        sizes = {member: len(keys) for member, keys in self._keys.items()}
        for name, party in config.parties.items():
            policy, others = party.policy, {member: rows for member, rows in sizes.items() if member != name}
            if len(sizes) == 1 + len(self._federation.names):
                policy.refuse_few(name, len(self.common), predicting=False)
            elif sizes[name] < policy.min_common_rows:
                least = policy.min_common_rows
                policy.object(name, "min_common_rows", least, f"at most the {sizes[name]} keys of its table in common")
            foreign = ForeignKeys(name, policy.max_other_rows)
            for owner, rows in others.items():
                foreign.expect(owner, rows)
            self._refuse_day(name, party, base, {SERVER: sum(others.values())})
        if config.server is not None:
            self._refuse_day(
                SERVER, config.server, base, {name: rows for name, rows in sizes.items() if name != SERVER}
            )

    def _refuse_day(self, member: str, own: PartyConfig | ServerConfig, base: Path, sizes: Mapping[str, int]) -> None:
        if lasting(own.identity and base / own.identity):  # otherwise nothing is counted
            DailyLimits.of(self._federation, own.alignments, base, member, pinned=False).expect(sizes)

    @property
    def most(self) -> str:
        """Prefix of a member's row count: with alignment, only rows that all members hold are used."""
        return "" if self._federation.align == "none" else "up to "

    def _refuse_others(self) -> None:
        """Refuses differing keys of tables without alignment."""
        for member, keys in self._keys.items():
            if SERVER in self._keys and keys != self._keys[SERVER]:
                raise DataError(
                    f"{member}: the keys of its table differ from those of server.labels, or their order does",
                    hint="federation.align: psi finds the rows that all have; or bring the tables into one order",
                )


_STARTS = {
    True: "federation.public_start: every member can compute the others' first models, and with what they send solve "
    "for their columns: leave it out where data are secret",
    False: "starts: each member draws its own in secret (in `simulate` they follow from federation.seed)",
}


def check(file: Path, sets: tuple[str, ...], *, run_models: bool = False) -> None:  # noqa: PLR0915
    """Checks a configuration and the data, models and keys that it names, and prints the findings.

    Model files are only inspected, unless `run_models` is set.
    """
    before = out.warnings
    config = load(file, sets)
    federation = config.federation
    check_trackers(config)
    refuse_policies(config)
    base = file.parent.resolve()
    overlap = Overlap(federation)
    schedules: dict[str, Schedule] = {}
    made: dict[str, Made] = {}
    probes: list[ModelProbe] = []
    refuse_labels_of_parties(config, base)
    labels = _check_labels(config, base, overlap, schedules, probes if run_models else None)
    coding = None
    if isinstance(federation.protocol, CodedConfig):
        coding = Coding(federation, federation.protocol)
    sums = None if CONTRACTS[federation.protocol.name].vectors is None else BinnedSums(federation)
    for name, party in config.parties.items():
        with whose(name):
            features = load_features(party.data, federation.party_index(name), base)
            if federation.align == "none" and labels is not None:
                refuse_other_rows(name, len(features.values), len(labels.values))
            overlap.add(name, features.ids)
            schedule = schedules[name] = Schedule(federation, len(features.values), features.official_test)
            train, typed = schedule.partition.train, federation.protocol.typed
            columns = prepare(party.data, features, train, federation.seed, name, typed=typed)
        shape = tuple(columns.shape[1:])
        found = _probes(name, federation, party, columns, base, run_models=run_models)
        probes += found
        model = found[0].model if found else None
        made[name] = model, shape
        # Before alignment the training rows are unknown: any row of the table may be one.
        looked_at = schedule.partition.train if federation.align == "none" else torch.arange(len(features.values))
        more = coding.add(name, columns, model, schedule.partition) if coding and model else ""
        if sums and columns.table is not None:
            more = sums.add(name, party, columns.table, looked_at)
        out.say(f"{name}: {overlap.most}{encoded_rows(len(features.values), shape)}{more}")
        _describe(name, features, party.data)
        copied = () if labels is None else copies(labels, features, federation.keys)
        for doubt in (
            *doubts(features),
            *unused(federation, party),
            *copied,
            *(columns.doubts if federation.align == "none" else ()),
            *hints_of_party(columns, looked_at, party.model),
        ):
            out.warn(f"{name}: {doubt}")
    common = overlap.show()
    overlap.refuse_policies(config, base)
    if coding:
        coding.show()
    if common is not None:
        schedules = {"": Schedule(federation, common, 0)}
    if common is not None or federation.align == "none":  # otherwise the run's rows are unknown
        for name, party in config.parties.items():
            allowed(name, federation, party.policy, (schedules.get(name) or schedules[""]).privacy)
    _probe_models(federation, probes, schedules if common is not None or federation.align == "none" else {})
    if sums and schedules:
        sums.show(min(schedules.values(), key=_train_rows))
    _check_classes(config, labels, overlap.common, schedules)
    _show_privacy(config, schedules, made)
    (out.warn if federation.public_start else out.say)(_STARTS[federation.public_start])
    _show_length(federation, schedules)
    check_identities(config, base)  # last: data can be checked before certificates have come back
    _look_for_devices(config)
    _conclude(config, file, before)


def _probe_models(
    federation: FederationConfig, probes: Sequence[ModelProbe], schedules: Mapping[str, Schedule]
) -> None:
    """Tests the members' own models and heads; batches of one row only if the run's schedule is known."""
    by_gradients = not CONTRACTS[federation.protocol.name].exchange.one_number
    parts = next((schedule.single_rows for schedule in schedules.values()), ())
    for probe in probes:
        for said in probe.doubts(parts, by_gradients=by_gradients):
            out.warn(said)


def _look_for_devices(config: Config) -> None:
    for name, member in {SERVER: config.server, **config.parties}.items():
        if member is not None:
            try:
                choose_device(member.device)
            except EnvironmentFault as absent:
                out.warn(f"{name}: {absent}; it ends with exit code 4 where that is so")


def _conclude(config: Config, file: Path, before: int) -> None:
    """Prints the last line. `before` is the number of earlier warnings."""
    federation = config.federation
    among = f"{file}: {federation.protocol.name} among {counted(len(federation.names), 'party')}"
    missing = [name for name in federation.names if name not in config.parties]
    if missing and config.server is not None and config.parties:
        out.warn(
            f"no section for {', '.join(missing)}, without which `up` and `simulate` refuse this file: add "
            "parties.NAME for each, or `every_party` for all"
        )
    seen = [*([SERVER] if config.server is not None else []), *config.parties]
    of = f" in what {listed(seen)} say of their own; {', '.join(missing)} not looked at" if missing else ""
    warnings = out.warnings - before
    found = f"no error and {counted(warnings, 'warning')} found" if warnings else "nothing wrong found"
    out.say(f"{among}, {found}{of}")


def _describe(member: str, features: Features, data: DataConfig) -> None:
    for line in described(features, getattr(data, "types", {})):
        out.say(f"{member}: {line}")


def _show_length(federation: FederationConfig, schedules: Mapping[str, Schedule]) -> None:
    if not schedules:
        return
    schedule = min(schedules.values(), key=_train_rows)
    said, weak = which_model(federation, schedule)
    (out.warn if weak else out.say)(said)
    for hint in hints_of_federation(federation, schedule):
        out.warn(hint)


def _show_privacy(config: Config, schedules: Mapping[str, Schedule], made: Mapping[str, Made]) -> None:
    """Prints the epsilon of every privacy section on the run's rows, or what could be estimated without noise.

    Args:
        made: every party's bottom model and the shape of its rows.
        schedules: that of the common rows or, if unknown, of every table that was read.
    """
    if not schedules:
        return
    federation = config.federation
    schedule = min(schedules.values(), key=_train_rows)  # an upper bound of the common rows
    for text, weak in planned(federation, config.server, schedule):
        (out.warn if weak else out.say)(text)
    if said := drowned(federation, schedule):
        out.warn(said)
    if said := estimated(federation, made, schedule):
        out.warn(said)
    if federation.privacy is not None and federation.privacy.unbounded:
        said = "federation.privacy.steps gives a bound for a row"
        out.warn(f"{said}, for example privacy: {PROPOSED}")


def _kinds(labels: LabelColumn) -> str:
    if not labels.classes:
        return f"with {labels.values.shape[1]} targets a row"
    positive = f" (positive: {labels.classes[1]})" if len(labels.classes) == 2 else ""
    return f"of {len(labels.classes)} classes{positive}"


def _check_classes(
    config: Config,
    labels: LabelColumn | None,
    common: frozenset[str],
    schedules: Mapping[str, Schedule],
) -> None:
    """Refuses labels of one class, and warns if a part lacks a class.

    Args:
        common: keys that all members have; empty if unknown.
    """
    federation, server = config.federation, config.server
    if labels is None or server is None:
        return
    private = server.privacy.labels is not None or server.privacy.answers is not None
    found: Iterable[str] = ()
    with whose(f"{SERVER}.labels"):
        if federation.align == "none":
            parts = LabelParts(labels.values, schedules[SERVER].partition, labels.classes)
            if federation.task == "regression":
                TargetScale.fit(labels.values, schedules[SERVER].partition.train)
            elif not private:
                parts.refuse_one()
            found = [*parts.warnings(), *parts.few(server.decide, server.calibrate)]
        elif common:
            keys = federation.keys.normals(labels.ids or ())
            rows = torch.tensor([row for row, key in enumerate(keys) if key in common])
            of = next(iter(schedules.values())).partition
            sizes = [len(part) for part in (of.train, of.validation, of.test)]
            found = [*of_common(labels.values[rows], labels.classes, sizes)]
            found += few_of_common(labels.values[rows], labels.classes, sizes[1], server.decide, server.calibrate)
    for doubt in found:
        out.warn(f"server: {doubt}")


def _train_rows(schedule: Schedule) -> int:
    return len(schedule.partition.train)


def _only_found(section: str, base: Path, model: object, head: object = None, run_models: bool = False) -> bool:
    """Inspects user model files without running them, and says so. Returns True if `model` is one."""
    later = "is tested when a run begins" if run_models else "--run-models runs it, and checks what it returns"
    for key, module in (("model", model), ("head", head)):
        if isinstance(module, OwnConfig):
            try:
                module.find(base)
            except ConfigError as error:
                raise ConfigError(f"{section}.{key}: {error}", hint=error.hint) from error
            said = f"{module.file} is there and was not run; {later}"
            out.say(f"{section}.{key}: {said}")
    return isinstance(model, OwnConfig)


def _probes(
    name: str,
    federation: FederationConfig,
    member: PartyConfig | ActiveConfig,
    columns: Columns,
    base: Path,
    *,
    run_models: bool,
) -> list[ModelProbe]:
    """A member's bottom model and its own head, if the protocol has them; user code only if it may run."""
    head, owner = getattr(member, "head", None), "server.active" if name == SERVER else f"parties.{name}"
    if not run_models and _only_found(owner, base, member.model, head):
        return []
    width = CONTRACTS[federation.protocol.name].width_of(federation)
    if width is None:
        return []
    shape = tuple(columns.shape[1:])
    make = partial(bottom_model, owner, member.model, shape, width, base=base)
    model = make(own_draws(federation, name).generator("model"))
    found = [
        ModelProbe(f"{owner}.model", member.model, model, make, columns[torch.arange(min(PROBE, len(columns.values)))])
    ]
    if head is not None and "head" in federation.protocol.optimisers and not federation.protocol.matrix and run_models:
        found.append(_head(f"{owner}.head", federation, head, width, base))
    return found


def _head(owner: str, federation: FederationConfig, config: HeadConfig, inputs: int, base: Path) -> ModelProbe:
    make = partial(build_head, config, inputs, federation.outputs, base=base)
    try:
        return ModelProbe(owner, config, make(torch.Generator()), make, head_rows(inputs))
    except ConfigError as error:
        raise ConfigError(f"{owner}: {error}", hint=error.hint) from error


def _check_labels(
    config: Config, base: Path, overlap: Overlap, schedules: dict[str, Schedule], probes: list[ModelProbe] | None
) -> LabelColumn | None:
    """`probes` takes the models of the server's own columns; None to run no user code."""
    if config.server is None:
        return None
    with whose(SERVER):
        labels = load_labels(config.server.labels, base, config.federation.task)
        overlap.add(SERVER, labels.ids)
    check_labels(labels, config.federation)
    schedule = schedules[SERVER] = Schedule(config.federation, len(labels.values), labels.official_test)
    kinds = _kinds(labels)
    parts = "" if overlap.most else f": {in_parts(schedule.partition)}"  # parts of the common rows, which show() counts
    out.say(f"server: {overlap.most}{len(labels.values)} labels {kinds}{parts}")
    if probes is None or config.server.active is None:
        _only_found("server", base, None, config.server.head, probes is not None)
    if labels.without:
        out.say(f"server: {labels.without}")
    for about in (*labels.doubts, *unused(config.federation, config.server)):
        out.warn(f"server: {about}")
    if (active := config.server.active) is not None:
        features = active_features(config.federation, config.server, active, base, len(labels.values), ids=labels.ids)
        columns = prepare(active.data, features, schedule.partition.train, config.federation.seed, SERVER)
        shape = tuple(columns.shape[1:])
        found = _probes(SERVER, config.federation, active, columns, base, run_models=probes is not None)
        if probes is not None and found:
            width = CONTRACTS[config.federation.protocol.name].width_of(config.federation) or 0
            probes += [*found, _head("server.head", config.federation, config.server.head, width, base)]
        out.say(f"server: {encoded_rows(len(labels.values), shape)}")
        _describe(SERVER, features, active.data)
        for doubt in (*doubts(features), *copies(labels, features, config.federation.keys)):
            out.warn(f"server: {doubt}")
    return labels
