"""Contexts of both sides in one process, from the configuration of a whole federation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.client.member.context import party_context
from colonnade.client.training.context import ClientContext
from colonnade.common.alignment.refusal import refuse_aligned
from colonnade.common.config.members import Config
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.draws import own_draws
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_features
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.run.device import choose_device
from colonnade.common.run.run_cache import RunCache
from colonnade.server.member.context import ServerParts, Timetable
from colonnade.server.privacy.label_digest import digest_of, hold_labels, refuse_other_labels
from colonnade.server.training.context import ServerContext
from colonnade.simulation.files import RunFiles

Side = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""(context, link or cohort, config of the protocol) -> one side of a run."""


def server_context(
    config: Config,
    base: Path,
    telemetry: Telemetry,
    sample: Tensor | None = None,
    *,
    files: RunFiles | None = None,
    timetable: Timetable = Schedule,
    cache: TableCache | None = None,
    protected: bool = False,
) -> ServerContext:
    """The server's context, with its labels read.

    Args:
        sample: rows of the sources to use, int64; None for all.
        protected: True to put noise on labels and responses, as a run does.
    """
    if config.server is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    if sample is None:
        refuse_aligned(config.federation.align, "a look at a run")
    cache = files.tables(SERVER) if cache is None and files is not None else cache
    parts = ServerParts(
        config.federation, config.server, base, telemetry, _device(config.server.device),
        out=None if files is None else files.folder.path, cache=cache, timetable=timetable,
    )  # fmt: skip
    with whose(SERVER):
        labels = parts.labels()
    if labels.without and sample is None:
        telemetry.event("warning", party=SERVER, reason=labels.without)
    for doubt in labels.doubts:
        telemetry.event("warning", party=SERVER, reason=str(doubt))
    ctx = parts.context(labels, sample)
    ctx.draws = own_draws(config.federation, SERVER, None if files is None else files.secret(SERVER))
    if files is not None:
        ctx.run_cache, ctx.session = files.run_cache(SERVER), files.session
        if sample is None:
            _hold(ctx.run_cache, labels, begun=files.begun)
    parts.add_columns(ctx, labels, sample, None if files is None else files.encoder(SERVER))
    if protected:
        parts.protect(ctx, begun=files is not None and files.begun)
    return ctx


def _hold(run_cache: RunCache, labels: LabelColumn, *, begun: bool) -> None:
    """Keeps the labels' digest at the beginning, and compares it when the run is resumed. Raises DataError."""
    if begun:
        refuse_other_labels(run_cache, labels)
    else:
        hold_labels(run_cache, digest_of(labels))


def client_context(
    config: Config,
    name: str,
    base: Path,
    *,
    sample: Tensor | None = None,
    files: RunFiles | None = None,
    timetable: Timetable = Schedule,
    warn: Callable[[str], None] | None = None,
    cache: TableCache | None = None,
) -> ClientContext:
    """A party's context, with its columns read, scaled and, if configured, noised; in a run `PartyLine` completes it.

    Args:
        sample: rows of the sources to use, int64; None for all.
        warn: called with every doubt about a column, and with the party's own warnings; None drops them.
    """
    federation, party = config.federation, config.parties[name]
    cache = files.tables(name) if cache is None and files is not None else cache
    kept = None if files is None else files.encoder(name)
    with whose(name):
        read = load_features(party.data, federation.party_index(name), base, cache, kept)
        if warn is not None:
            for doubt in doubts(read):
                warn(str(doubt))
        features = sampled(read, sample)
        schedule = timetable(federation, len(features.values), features.official_test)
        device = _device(party.device, federation.names.index(name))
        ctx = party_context(name, federation, party, features, schedule, base=base, device=device, kept=kept)
    return replace(
        ctx,
        release=_as_is,
        admit_masked=_as_is,
        warn=warn or (lambda _reason: None),
        draws=own_draws(federation, name, None if files is None else files.secret(name)),
        run_cache=RunCache() if files is None else files.run_cache(name),
        session=Session() if files is None else files.session,
    )


def _as_is(value: Any, *_of: Any, **_how: Any) -> Any:
    return value


def _device(wanted: str, index: int = 0) -> torch.device:
    """The configured device; `auto` means the CPU here, where equal runs have equal bits."""
    return choose_device("cpu" if wanted == "auto" else wanted, index)


def refuse_other_rows(party: str, rows: int, labels: int) -> None:
    if rows != labels:
        raise DataError(
            f"{party} has {rows} rows, the labels have {labels}",
            hint="all members need the same rows in the same order; or keys, and federation.align: psi",
        )
