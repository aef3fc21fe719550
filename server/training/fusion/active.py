"""The server as the active party: its labels, columns and model, and the joint model with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ActiveConfig, ServerConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_features, prepare, prepare_others, refuse_own_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import DataError
from colonnade.common.models.build import bottom_model
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.models.probes import PROBE, ModelProbe
from colonnade.common.models.two_part import TwoPart
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.heads import joint_head

_ONE_TABLE = (
    "alignment finds the parties' rows by the keys of server.labels, and the server's own columns stand in the same "
    "rows: join the two tables by their key into one file, name it in both sections, and leave the label out of the "
    "columns with server.active.data.drop"
)


def load_columns(
    federation: FederationConfig,
    config: ServerConfig,
    schedule: Schedule,
    base: Path,
    rows: int,
    *,
    sample: Tensor | None = None,
    kept: EncoderFile | None = None,
    ids: Sequence[str] | None = None,
    cache: TableCache | None = None,
) -> Columns | None:
    """Reads and scales `server.active.data`; None if not configured.

    Args:
        rows: number of label rows read.
        sample: rows to keep; None for all.
        ids: keys of the label rows, if rows have keys.

    Raises DataError if columns are missing or unusable, or their rows differ from the labels'.
    """
    if config.active is None:
        return None
    features = active_features(federation, config, config.active, base, rows, ids=ids, cache=cache, kept=kept)
    train = schedule.partition.train
    typed = federation.protocol.typed
    return prepare(config.active.data, sampled(features, sample), train, federation.seed, SERVER, kept, typed=typed)


def active_features(
    federation: FederationConfig,
    config: ServerConfig,
    active: ActiveConfig,
    base: Path,
    rows: int,
    *,
    ids: Sequence[str] | None = None,
    cache: TableCache | None = None,
    kept: EncoderFile | None = None,
) -> Features:
    """Reads the rows of `server.active.data` that have labels. Arguments and errors as in `load_columns`."""
    refuse_own_labels(config.labels, active.data, federation.party_index(SERVER), "server.active.data", base)
    features = load_features(active.data, federation.party_index(SERVER), base, cache, kept)
    same = federation.keys.normal
    if getattr(config.labels, "missing", "") == "drop" and ids is not None and features.ids is not None:
        labelled = set(map(same, ids))
        features = features.rows(torch.tensor([row for row, id in enumerate(features.ids) if same(id) in labelled]))
    if (found := len(features.values)) != rows:
        raise DataError(f"server.active.data has {found} rows, the labels have {rows}", hint=_ONE_TABLE)
    if ids is not None and features.ids is not None and [*map(same, features.ids)] != [*map(same, ids)]:
        raise DataError(
            "server.active.data and server.labels have other keys, or the same in another order",
            hint=_ONE_TABLE,
        )
    return features


def columns_of(
    federation: FederationConfig,
    config: ServerConfig,
    base: Path,
    places: Mapping[str, int],
    out: Path,
    taken: Callable[[Features], None],
) -> Columns | None:
    """The server's columns for the rows to predict, which may be new; None if it has no columns.

    Args:
        places: position of each normalised key.
        out: the run's folder, which holds the encoder.
        taken: called with the unscaled rows.
    """
    if config.active is None:
        return None
    kept = EncoderFile(out, begun=True)
    features = load_features(config.active.data, federation.party_index(SERVER), base, TableCache(out), kept)
    own = {federation.keys.normal(id): row for row, id in enumerate(features.ids or ())}
    if lacking := sum(key not in own for key in places):
        raise DataError(
            f"server.active.data has no row for {lacking} of the {len(places)} ids that all parties know",
            hint="ask for ids that the server's own table has, or give it the other rows",
        )
    index = torch.empty(len(places), dtype=torch.int64)
    for key, place in places.items():
        index[place] = own[key]
    rows = features.rows(index)
    typed = federation.protocol.typed
    columns = prepare_others(config.active.data, rows, federation.seed, SERVER, kept, typed=typed)
    taken(rows)
    return columns


def own_keys(federation: FederationConfig, config: ServerConfig, base: Path, out: Path) -> frozenset[str] | None:
    """Normalised keys of the rows that the server has columns for; None if it has no columns."""
    if config.active is None:
        return None
    kept = EncoderFile(out, begun=True)
    ids = load_features(config.active.data, federation.party_index(SERVER), base, TableCache(out), kept).ids
    return frozenset(federation.keys.normal(id) for id in ids or ())


def active_party(ctx: ServerContext, width: int) -> TwoPart:
    """l_0: the server's own two networks and their optimisers, restored from the state or newly initialised."""
    config, columns = ctx.config.active, ctx.columns
    assert config is not None and columns is not None  # required by the protocol's contract
    shape = tuple(columns.shape[1:])

    def first() -> nn.Module:
        make = partial(bottom_model, "server.active", config.model, shape, width, base=ctx.base)
        model = make(ctx.draws.generator("active model")).to(ctx.device)
        rows = columns[torch.arange(min(PROBE, columns.shape[0]))]
        for said in ModelProbe("server.active.model", config.model, model, make, rows).doubts(ctx.schedule.single_rows):
            ctx.warn(said)
        return model

    bottom: nn.Module = ctx.state.keep("active model", first)
    head: nn.Module = ctx.state.keep("head", lambda: joint_head(ctx, width))
    return TwoPart(
        bottom,
        head,
        ctx.state.keep("active optimiser", lambda: build_optimiser(config.optimiser, bottom.parameters())),
        ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, head.parameters())),
    )


Averaged = Literal["embeddings", "logits"]


@dataclass(frozen=True)
class ActiveJoint:
    """An average over the active party and all others.

    Args:
        x: the active party's columns of the rows, float32 (rows, ...).
        count: members in the average, the active party included.
        averaged: what the parties send: embeddings, whose average enters the active party's head (VFedMH), or logits
            (agg_vfl).
    """

    own: TwoPart
    x: Tensor
    count: int
    averaged: Averaged

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        return self.of_sum(torch.stack(list(parts)).sum(0))

    def of_sum(self, total: Tensor) -> Tensor:
        with self.own.evaluation() as still:
            if self.averaged == "logits":
                return (still.predict(still.embed(self.x)) + total.to(self.x.device)) / self.count
            return still.predict(self.average(total))

    def average(self, total: Tensor) -> Tensor:
        """E, the average embedding, from the parties' sum: float32 (rows, width), on the device."""
        with self.own.evaluation() as still:
            return (still.embed(self.x) + total.to(self.x.device)) / self.count

    def heads(self) -> None:
        """None: the server keeps no heads for the parties."""


def active_joint(ctx: ServerContext, width: int, averaged: Averaged) -> Callable[[Tensor], ActiveJoint]:
    own, columns, count = active_party(ctx, width), ctx.columns, len(ctx.federation.names) + 1
    assert columns is not None  # required by the contract
    return lambda rows: ActiveJoint(own, columns[rows], count, averaged)
