"""What a server's context is made from: for its process, for the virtual clock, and for a look at a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.privacy.label_budget import open_releases
from colonnade.server.privacy.noisy_labels import NoisyLabelFile
from colonnade.server.training.context import ServerContext, check_labels
from colonnade.server.training.fusion.active import load_columns

Timetable = Callable[[FederationConfig, int, int], Schedule]
"""(agreed section, number of rows, number of official test rows) -> the schedule, the same for all members."""


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

        Raises DataError if the labels are other than agreed.
        """
        check_labels(labels, self.federation)
        known = sampled(labels, rows)
        schedule = self.timetable(self.federation, len(known.values), known.official_test)
        return ServerContext(
            self.federation, self.config, known.values.to(self.device), schedule,
            telemetry=self.telemetry, base=self.base, device=self.device, classes=labels.classes, weights=known.weights,
            ids=known.ids,
        )  # fmt: skip

    def reduce(self, ctx: ServerContext, labels: LabelColumn, rows: Tensor) -> None:
        """Reduces a context without noise to the rows at these positions, int64 (m,)."""
        known = labels.rows(rows)
        ctx.take(known.values.to(self.device), self.timetable(self.federation, len(rows), 0), known.weights)
        ctx.ids = known.ids

    def add_columns(
        self, ctx: ServerContext, labels: LabelColumn, rows: Tensor | None = None, kept: EncoderFile | None = None
    ) -> None:
        """Reads the server's own columns, if it has any.

        Args:
            labels: all labels, `rows` the positions of the context's rows among them; None for all.
            kept: where the run keeps the encoder; None for nowhere.

        Raises DataError as `load_columns`.
        """
        columns = load_columns(
            self.federation, self.config, ctx.schedule, self.base, len(labels.values),
            sample=rows, kept=kept, ids=labels.ids, cache=self.cache,
        )  # fmt: skip
        ctx.columns = columns and columns.to(self.device)

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
