"""An attacked run: its configuration, its ground truth, and its parties' captures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.client.protocols import LOCAL
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.client.transcript.capture import Captured, has_capture, read_capture
from colonnade.common.alignment.store import rows_of_run
from colonnade.common.config.alignment import refuse_aligned
from colonnade.common.config.members import Config
from colonnade.common.contracts.owner import owner_of
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_features, load_labels, prepare
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import CheckpointError, ConfigError, InputError, nearest
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.earlier_defaults import load_begun
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.common.run.state import Snapshot, State
from colonnade.server.privacy import refuse_other_labels
from colonnade.server.protocols import FORESTS, JOINT
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import Joint

SCORES = ("additive", "hetero_lr", "scorecard")
"""Protocols whose parties are returned sums over their own columns, and send scores."""
_HOW = "run it again with --set 'every_party.capture={}', or `capture` in a party's section"


@dataclass(frozen=True, eq=False)
class AttackedRun:
    """A run's folder, opened, with its members' data.

    Args:
        base: folder that paths in the config are relative to.
        labels: true classes of all rows, int64 (rows,).
        schedule: as all members derived it.
        sample: the rows of the sources that the run used, int64, in the run's order; None for all. In an aligned run
            they are the server's.
    """

    folder: Path
    config: Config
    base: Path
    summary: dict[str, Any]
    labels: Tensor
    schedule: Schedule
    sample: Tensor | None = None

    @property
    def protocol(self) -> str:
        return self.config.federation.protocol.name

    @property
    def epochs(self) -> int:
        """Epochs trained; the last one may be partial."""
        return math.ceil(self.schedule.epoch(int(self.summary["rounds"])))

    @property
    def captured(self) -> tuple[str, ...]:
        return tuple(name for name in self.config.federation.names if has_capture(self._home(name).path))

    def training(self, party: str) -> Iterator[Captured]:
        """Yields a party's captured messages about training rows, in order. Raises InputError."""
        return read_capture(self._home(party).capture, self.config.federation)

    def evaluations(self, party: str) -> Iterator[Captured]:
        """Yields a party's captured messages about validation and test rows."""
        return read_capture(self._home(party).evaluation_capture, self.config.federation)

    def columns(self, party: str) -> Columns:
        """Returns a party's columns as its model saw them: the ground truth of an inversion. Raises DataError."""
        data, federation = self.config.parties[party].data, self.config.federation
        home = self._home(party)
        kept = EncoderFile(home.path, begun=True)
        read = load_features(data, federation.party_index(party), self.base, TableCache(home.path), kept)
        rows = self.sample if federation.align == "none" else rows_of_run(federation, home, read.ids, party)
        train, typed = self.schedule.partition.train, federation.protocol.typed
        return prepare(data, sampled(read, rows), train, federation.seed, party, kept, typed=typed)

    @property
    def summed(self) -> bool:
        """True if parties send sums over their columns or scores: members' views follow from their states."""
        return self.protocol in FORESTS or self.protocol in SCORES

    @property
    def opens(self) -> bool:
        """True if the joint model can be restored from checkpoints."""
        return self.protocol in JOINT and self.protocol in LOCAL

    def refuse_unrestored(self) -> None:
        """Raises InputError if the joint model cannot be restored."""
        if not self.opens:
            raise InputError(f"{self.protocol}: its model cannot be restored", hint="take another run")

    def joint(self) -> Joint:
        """Returns the server's part of the joint model at the end. Raises CheckpointError."""
        return JOINT[self.protocol](self.server(), self.config.federation.protocol)

    def server(self) -> ServerContext:
        """Returns the server's context with its state at the end. Raises CheckpointError."""
        federation, config = self.config.federation, self.config.server
        assert config is not None  # checked by open_run
        ctx = ServerContext(federation, config, self.labels, self.schedule, Telemetry(), self.base)
        ctx.restore(*self._state(SERVER))
        return ctx

    def local(self, party: str) -> tuple[Local, Columns]:
        """A party's part of the joint model at the end, in evaluation mode, and its columns."""
        ctx, columns = self.party(party)
        return LOCAL[self.protocol](ctx, self.config.federation.protocol).eval(), columns

    def party(self, party: str) -> tuple[ClientContext, Columns]:
        config, columns = self.config.parties[party], self.columns(party)
        round, state = self._state(party)
        ctx = ClientContext(
            party, self.config.federation, config, columns,
            schedule=self.schedule, release=_as_it_is, admit_masked=_as_it_is, base=self.base,
            state=State(state), round=round,
        )  # fmt: skip
        return ctx, columns

    def _state(self, member: str) -> tuple[int, Snapshot]:
        """Returns the newest checkpoint's round and state. Raises CheckpointError."""
        run = RunFolder(self.folder)
        folder, number = run.member(member).checkpoints, run.number() or "simulated"
        own = self.config.server if member == SERVER else self.config.parties[member]
        store = Checkpoints(folder)
        owner = owner_of(self.config.federation, member, own, self.base, number)
        if not (rounds := store.usable(owner)):
            raise CheckpointError(
                f"{folder} holds no whole checkpoint of {member}",
                hint="the folders of all members are needed as the run left them",
            )
        return rounds[0], store.load(rounds[0], owner)

    def victims(self, wanted: str, *, captured: bool = True) -> tuple[str, ...]:
        """Returns the parties to attack: the named one, or all (that captured) for ""."""
        if wanted and wanted not in self.config.federation.names:
            names = self.config.federation.names
            raise InputError(
                f"--party {wanted}: no such party{nearest(wanted, names)}", hint=f"there are {', '.join(names)}"
            )
        if captured and wanted and wanted not in self.captured:
            raise InputError(f"--party {wanted}: it captured nothing in {self.folder}", hint=_HOW)
        return (wanted,) if wanted else self.captured if captured else self.config.federation.names

    def _home(self, party: str) -> PartyFolder:
        return RunFolder(self.folder).party(party)


def open_run(
    folder: Path, sample: Tensor | None = None, *, captured: bool = True, aligned: bool = False
) -> AttackedRun:
    """Opens the folder of a run of `up` or `simulate`.

    Args:
        sample: the rows of the sources that the run used; None for all.
        captured: whether a party must have captured.
        aligned: whether the run may have aligned its rows. Labels and schedule are then those of the common rows.
            Attacks that read columns, or that train again, need tables in one order.
    """
    kept = RunFolder(folder)
    kept.refuse_unreadable()
    summary = kept.read_summary() or {}
    if "protocol" not in summary:
        raise InputError(
            f"{folder} holds no run that has ended: there is no summary.json",
            hint="give the folder that `up` or `simulate` printed",
        )
    base = kept.base() or kept.simulated_base()
    if base is None or not kept.config.is_file():
        raise InputError(f"{folder} does not say how it was run: there is no config.yaml", hint=_HOW)
    config = load_begun(kept.config)
    if config.server is None:
        raise ConfigError(f"{kept.config}: no `server` section", hint="the labels are needed")
    if not aligned:
        refuse_aligned(config.federation.align, "this attack")
    if config.federation.task == "regression":
        raise InputError("the attacks are for classes: a regression has none", hint="take a run of a classification")
    labels = load_labels(config.server.labels, base, cache=config.server.copies(TableCache(folder)))
    refuse_other_labels(RunCache(kept.member(SERVER).run_cache), labels)
    if config.federation.align != "none":
        sample = rows_of_run(config.federation, kept.member(SERVER), labels.ids, SERVER)
    labels = sampled(labels, sample)
    schedule = Schedule(config.federation, len(labels.values), labels.official_test)
    run = AttackedRun(folder, config, base, summary, labels=labels.values, schedule=schedule, sample=sample)
    if captured and not run.summed and not run.captured:
        raise InputError(f"no party of the run in {folder} kept what crossed its link", hint=_HOW)
    return run


def _as_it_is(values: Tensor, *_how: object, **_more: object) -> Any:
    return values


def accuracy(found: Tensor, truth: Tensor) -> float:
    return (found == truth).to(torch.float64).mean().item()


def largest_class(labels: Tensor) -> float:
    return (torch.bincount(labels).max() / len(labels)).item()
