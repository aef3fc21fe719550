"""Contexts of both sides for inspecting a run or its tables, outside any session."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from colonnade.client.member.context import party_context
from colonnade.client.training.context import ClientContext
from colonnade.common.alignment.store import rows_of_run
from colonnade.common.config.alignment import refuse_aligned
from colonnade.common.config.members import Config
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.draws import own_draws
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_features
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.error_messages import whose
from colonnade.common.run.device import choose_device
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import MemberFolder
from colonnade.server.member.context import ServerParts
from colonnade.server.privacy import refuse_other_labels
from colonnade.server.training.context import ServerContext

Side = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""(context, link or cohort, config of the protocol) -> one side of a run."""


def server_context(config: Config, base: Path, telemetry: Telemetry, home: MemberFolder | None = None) -> ServerContext:
    """The server's context, with its labels and columns read and no noise.

    Args:
        home: the run's folder; its rows and encoders are taken. None for all rows of the sources.

    Raises DataError if a run was trained on other labels, keys or columns than the tables have today.
    """
    if config.server is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    federation = config.federation
    if home is None:
        refuse_aligned(federation.align, "a look at a run")
    parts = ServerParts(
        federation, config.server, base, telemetry, virtual_device(config, SERVER),
        cache=None if home is None else TableCache(home.path),
    )  # fmt: skip
    rows, kept = None, None
    with whose(SERVER):
        labels = parts.labels()
        if home is not None:
            refuse_other_labels(RunCache(home.run_cache), labels)
            rows, kept = rows_of_run(federation, home, labels.ids, SERVER), EncoderFile(home.path, begun=True)
    ctx = parts.context(labels, rows)
    ctx.draws = own_draws(federation, SERVER, None)
    parts.add_columns(ctx, labels, rows, kept)
    return ctx


def client_context(config: Config, name: str, base: Path, home: MemberFolder | None = None) -> ClientContext:
    """A party's context, with its columns read and encoded; it releases values unprotected. `home` as for
    `server_context`.
    """
    federation, party = config.federation, config.parties[name]
    kept, cache = (None, None) if home is None else (EncoderFile(home.path, begun=True), TableCache(home.path))
    with whose(name):
        features = load_features(party.data, federation.party_index(name), base, cache, kept)
        if home is not None:
            features = sampled(features, rows_of_run(federation, home, features.ids, name))
        schedule = Schedule(federation, len(features.values), features.official_test)
        device = virtual_device(config, name)
        ctx = party_context(name, federation, party, features, schedule, base=base, device=device, kept=kept)
    return replace(ctx, release=_as_is, admit_masked=_as_is, draws=own_draws(federation, name, None))


def _as_is(value: Any, *_of: Any, **_how: Any) -> Any:
    return value


def virtual_device(config: Config, member: str) -> torch.device:
    """The configured device; `auto` means the CPU here, where equal runs have equal bits.

    One process has one kernel setting: the fastest, if all members that name a GPU have `repeatable: false`.
    """
    names, members = config.federation.names, {SERVER: config.server, **config.parties}
    on_gpus = [one for one in members.values() if one is not None and one.device not in ("auto", "cpu")]
    own, index = members[member], 0 if member == SERVER else names.index(member)
    wanted = "cpu" if own is None or own.device == "auto" else own.device
    return choose_device(wanted, index, repeatable=any(one.repeatable for one in on_gpus))


def refuse_other_rows(party: str, rows: int, labels: int) -> None:
    if rows != labels:
        raise DataError(
            f"{party} has {rows} rows, the labels have {labels}",
            hint="all members need the same rows in the same order; or keys, and federation.align: psi",
        )
