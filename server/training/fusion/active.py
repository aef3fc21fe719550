"""The server as the active party: its labels, columns and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

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
from colonnade.common.data.sources import load_features, prepare, prepare_others
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import DataError
from colonnade.common.models.build import bottom_model
from colonnade.common.models.optimiser import build_optimiser
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
        kept: where the run stores the encoder; None for nowhere.
        ids: ids of the label rows, where rows have keys.

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

    def make() -> nn.Module:
        start = ctx.draws.generator("active model")
        return bottom_model("server.active", config.model, shape, width, start, ctx.base).to(ctx.device)

    bottom: nn.Module = ctx.state.keep("active model", make)
    head: nn.Module = ctx.state.keep("head", lambda: joint_head(ctx, width))
    return TwoPart(
        bottom,
        head,
        ctx.state.keep("active optimiser", lambda: build_optimiser(config.optimiser, bottom.parameters())),
        ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, head.parameters())),
    )
