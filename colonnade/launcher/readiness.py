"""Checks of a whole configuration before its members are started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from colonnade.common.config.members import Config
from colonnade.common.contracts.owner import owner_of
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.sources import load_features, load_labels, refuse_own_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.common.parsing.error_messages import whose
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.tracking.tracker import refuse_missing


def check_members(config: Config, where: str) -> None:
    """Refuses a configuration without a member's section, with a missing tracker, or weaker than a party's policy."""
    check_trackers(config)
    refuse_incomplete(config, where)
    refuse_policies(config)


def refuse_incomplete(config: Config, where: str) -> None:
    if config.server is None:
        raise ConfigError(f"{where}: no `server` section", hint="all members run here, and the server has the labels")
    missing = [name for name in config.federation.names if name not in config.parties]
    if missing:
        raise ConfigError(
            f"{where}: no section for {', '.join(missing)}",
            hint="add parties.NAME for each, or `every_party` for all",
        )


def refuse_policies(config: Config) -> None:
    """Refuses a federation that is weaker than a party's policy, as the party does when it starts."""
    for name, party in config.parties.items():
        party.policy.refuse(name, config.federation)


def refuse_tables(config: Config, base: Path, folder: Path | None = None) -> None:
    """Refuses a party's table that is the labels' own and has the label among its columns; and tables with keys
    in another order than the labels', where rows are matched by their order.

    Checks keys only if every source names its keys. Members find copies of their tables in their folders, and do not
    read them again.
    """
    federation, server = config.federation, config.server
    refuse_labels_of_parties(config, base)
    if federation.align != "none" or server is None or not getattr(server.labels, "key", None):
        return
    keyed = {name: party.data for name, party in config.parties.items() if getattr(party.data, "key", None)}
    if not keyed:
        return
    with _copies(folder, SERVER) as cache, whose(SERVER):
        labels = load_labels(server.labels, base, federation.task, server.copies(cache)).ids
    same = federation.keys.normal
    for name, data in keyed.items():
        with _copies(folder, name) as cache, whose(name):
            ids = load_features(data, federation.party_index(name), base, cache).ids
        if ids is None or labels is None or ids == labels:
            continue
        if [*map(same, ids)] != [*map(same, labels)]:
            raise DataError(
                f"{name}: the keys of its table differ from those of server.labels, or their order does",
                hint="federation.align: psi finds the rows that all have; or bring the tables into one order",
            )


def refuse_labels_of_parties(config: Config, base: Path) -> None:
    """Refuses a party's columns as `refuse_own_labels`, where one configuration has the labels too."""
    if config.server is None:
        return
    for name, party in config.parties.items():
        index = config.federation.party_index(name)
        with whose(name):
            refuse_own_labels(config.server.labels, party.data, index, f"parties.{name}.data", base)


@contextmanager
def _copies(folder: Path | None, member: str) -> Iterator[TableCache | None]:
    if folder is None:
        yield None
        return
    home = RunFolder(folder).member(member)
    home.make()
    cache = TableCache(home.path, writes=True)
    yield cache
    cache.keep()


def check_trackers(config: Config) -> None:
    """Refuses trackers whose packages are not installed on this machine. Raises EnvironmentFault."""
    if config.server is not None:
        refuse_missing("server.trackers", config.server.trackers)
    for name, party in config.parties.items():
        refuse_missing(f"parties.{name}.trackers", party.trackers)


def load_resumed(folder: Path, sets: Sequence[str], otherwise: str) -> tuple[Config, Path]:
    """A run's own configuration except for `sets`, and the folder of its paths; `otherwise` as of `begun_base`.

    Raises CheckpointError, before anything is written, if members cannot resume under it.
    """
    run = RunFolder(folder)
    run.refuse_unreadable()
    base = run.begun_base(otherwise)
    config = load_begun(run.config, tuple(sets))
    check_members(config, str(run.config))
    for name in (SERVER, *config.federation.names):
        with whose(name):
            own = config.server if name == SERVER else config.parties[name]
            owner = owner_of(config.federation, name, own, base, trains=True)
            Checkpoints(run.member(name).checkpoints).refuse_others(owner)
    return config, base
