"""What a server's context is made from: for its process, for the virtual clock, and for a look at a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.aggregation.summed_sets import NAME as SUMS
from colonnade.common.aggregation.summed_sets import times_written
from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import NAME as SEED
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig, unused
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.draws import own_draws
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.start_secret import StartSecret
from colonnade.server.alignment.rows import ServerRows, server_keeping
from colonnade.server.member.admission import DataShape
from colonnade.server.member.saving import COMMITTED, refuse_older
from colonnade.server.privacy import NoisyLabelFile, digest_of, open_releases, refuse_other_labels
from colonnade.server.training.context import ServerContext, check_labels
from colonnade.server.training.fusion.active import load_columns

Timetable = Callable[[FederationConfig, int, int], Schedule]
"""(agreed section, number of rows, number of official test rows) -> the schedule, the same for all members."""


@dataclass(frozen=True)
class ServerTable:
    """A context, and its table at the beginning of a start.

    Attributes:
        rows: aligns the table; None if its rows are in the agreed order already.
        digest: hash of the labels, for `hold_labels` once the run begins; "" in later starts.
    """

    ctx: ServerContext
    shape: DataShape
    rows: ServerRows | None
    doubts: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class ServerParts:
    """The server's configuration, and where it runs.

    Args:
        base: the folder that paths in the configuration are relative to.
        out: the run's folder; None keeps nothing.
        cache: copies of the server's tables in that folder; None for none.
        timetable: makes the schedule, and thus partitions the rows.
    """

    federation: FederationConfig
    config: ServerConfig
    base: Path
    telemetry: Telemetry
    device: torch.device
    _: KW_ONLY
    out: Path | None = None
    cache: TableCache | None = None
    timetable: Timetable = Schedule

    def labels(self) -> LabelColumn:
        """Reads all labels. Raises DataError if they are unusable."""
        return load_labels(self.config.labels, self.base, self.federation.task, self.config.copies(self.cache))

    def context(self, labels: LabelColumn, rows: Tensor | None = None) -> ServerContext:
        """The context over all rows, or over the rows at these positions, int64 (m,); without columns and noise.

        Raises DataError if the labels differ from the agreed ones.
        """
        check_labels(labels, self.federation)
        known = sampled(labels, rows)
        schedule = self.timetable(self.federation, len(known.values), known.official_test)
        return ServerContext(
            self.federation, self.config, known.values.to(self.device), schedule,
            telemetry=self.telemetry, base=self.base, device=self.device, classes=labels.classes, weights=known.weights,
            ids=known.ids,
        )  # fmt: skip

    def prepare(
        self,
        labels: LabelColumn,
        start: StartSecret,
        run_cache: RunCache,
        identity: Identity | None = None,
        *,
        begun: bool,
        secure: bool = False,
        sample: Tensor | None = None,
    ) -> ServerTable:
        """Sets up the context for these labels; its rows, columns and noise follow an alignment, if there is one.

        Args:
            start: the secret from which the context's draws follow.
            begun: True if an earlier start has begun the run.
            sample: positions of the rows to use, in the agreed order, int64 (m,); None for all.

        Raises DataError if the labels differ from those that the run began with, CheckpointError as `protect`.
        """
        federation, out = self.federation, self.out
        aligned = federation.align != "none" and sample is None
        if begun and sample is None:
            refuse_other_labels(run_cache, labels)
        keys = RowKeys.of(labels.ids, federation.keys, SERVER, out) if aligned else None
        ctx, rows = self.context(labels, sample), None
        self._refuse_older("sums", times_written(run_cache), lambda run: run.run_cache / f"{SUMS}.record")
        ctx.draws = own_draws(federation, SERVER, start.value)
        ctx.identity, ctx.run_cache = identity, run_cache
        if keys is None:
            self._equip(ctx, labels, sample, begun=begun)
        else:
            record = AlignmentRecord(run_cache, keys, SERVER)
            again = partial(self._reduce, ctx, labels, begun=bool(record.number))
            seed, keeping = Seed(), Keeping()
            if out is not None:
                seed = Seed(RunFolder(out).run_cache / SEED)
                keeping = server_keeping(federation, self.config, self.base, out, self.telemetry, secure=secure)
            kinds = CONTRACTS[federation.protocol.name].kinds
            rows = ServerRows(federation, record, self.telemetry, kinds, again, seed, keeping)
        known = sampled(labels, sample)
        without = [labels.without] if labels.without and sample is None else []
        digest = digest_of(labels) if sample is None and not begun else ""
        shape = DataShape(len(known.values), known.official_test)
        return ServerTable(
            ctx, shape, rows, (*without, *map(str, labels.doubts), *unused(federation, self.config)), digest
        )

    def _reduce(self, ctx: ServerContext, labels: LabelColumn, rows: Tensor, *, begun: bool) -> None:
        """Reduces a context without noise to the common rows, int64 (common,), and equips it."""
        known = labels.rows(rows)
        ctx.take(known.values.to(self.device), self.timetable(self.federation, len(rows), 0), known.weights)
        ctx.ids = known.ids
        self._equip(ctx, labels, rows, begun=begun)
        if self.cache is not None:
            self.cache.keep()

    def _equip(self, ctx: ServerContext, labels: LabelColumn, rows: Tensor | None, *, begun: bool) -> None:
        """Columns and noise of a context for its rows, which are at the positions `rows` of the tables."""
        kept = None
        if self.out is not None:
            kept = EncoderFile(self.out, begun=begun and bool(Checkpoints(RunFolder(self.out).checkpoints).usable()))
        self.add_columns(ctx, labels, rows, kept)
        self.protect(ctx, begun=begun)
        self._refuse_older("labels", ctx.labels_released, lambda run: run.noisy_labels)

    def _refuse_older(self, name: str, count: int, path: Callable[[RunFolder], Path]) -> None:
        if self.out is not None:
            run = RunFolder(self.out)
            refuse_older(run.checkpoints / COMMITTED, name, count, path(run))

    def add_columns(
        self, ctx: ServerContext, labels: LabelColumn, rows: Tensor | None = None, kept: EncoderFile | None = None
    ) -> None:
        """Reads the server's own columns, if it has any. Raises DataError as `load_columns`.

        `rows` are the positions of the context's rows among all labels; None for all.
        """
        columns = load_columns(
            self.federation, self.config, ctx.schedule, self.base, len(labels.values),
            sample=rows, kept=kept, ids=labels.ids, cache=self.cache,
        )  # fmt: skip
        ctx.columns = columns and columns.to(self.device)
        for doubt in columns.doubts if columns else ():
            ctx.warn(str(doubt))

    def protect(self, ctx: ServerContext, *, begun: bool) -> None:
        """Draws or reads the noise on labels and the count of responses. `begun`: an earlier start may have used them.

        The last step, which stores what it draws. Raises CheckpointError if the run was begun with other settings.
        """
        private, federation, schedule = self.config.privacy, self.federation, ctx.schedule
        noisy = NoisyLabelFile(self.out, begun=begun).get(
            private.labels, ctx.labels.cpu(), schedule.partition.train, federation.outputs, federation.seed
        )
        ctx.protect(noisy)
        ctx.releases = open_releases(
            private.answers, schedule, len(federation.names), len(ctx.labels), self.out,
            begun=begun, arrivals=federation.protocol.asynchronous,
        )  # fmt: skip
