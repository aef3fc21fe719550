"""Context of a protocol's party side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from colonnade.client.privacy.answers import Answers, Kind
from colonnade.client.privacy.codes import OwnEncoder
from colonnade.client.ranks.backprop import RankedBackprop
from colonnade.client.ranks.group import Group
from colonnade.client.training.cut_layer import Adjusted, NoisyBackprop, ShapedBackprop
from colonnade.client.transcript.receipts import Receipts
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.config.models import UserModule, user_parts
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import PairKeys, Session
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.draws import Draws, SecretDraws
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.outgoing import MaskedTensor, Released
from colonnade.common.models.backprop import Backprop, backprop
from colonnade.common.models.build import bottom_model, build_head
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.models.probes import PROBE, ModelProbe, head_rows, mixing
from colonnade.common.privacy.rows import NoisySteps
from colonnade.common.privacy.shaped import Shaped
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.state import State


@dataclass
class ClientContext:
    """Features, schedule, state and the privacy stage.

    Attributes:
        features: `features[rows]` is float32 (rows, ...), on the device.
        release: passes a function of private rows through the party's privacy stage; only its result can be sent.
        admit_masked: admits values that reveal nothing by themselves, exactly as sealing, masking or coding returned
            them.
        draws: the party's own, for initial weights, dropout and the like; never for noise or keys.
        scored: counts the rows of a prediction, int64 (rows,).
        idle: set by the party side of a prediction while it waits for the next request.
        keep: writes own predictions to disk: rows int64 (rows,), probabilities (rows, classes).
        explain: writes reasons of a scorecard's points to disk: rows, and a line each.
        session: its number, from which keys and draws are derived.
        identity: None on loopback without TLS.
        keyed: called with the keys that the parties have agreed on.
        answers: durable count of answers to the server's vectors or splits; its argument is the most that a run asks
            for.
        receipts: records of the sealed boxes that parties send each other.
        ranks: the party's other processes; None without.
    """

    name: str
    federation: FederationConfig
    config: PartyConfig
    features: Columns
    schedule: Schedule
    release: Callable[..., Released]
    admit_masked: Callable[..., MaskedTensor]
    warn: Callable[[str], None] = lambda _reason: None
    keep: Callable[[Tensor, Tensor], None] = lambda _rows, _values: None
    explain: Callable[[Tensor, Sequence[Sequence[str]]], None] = lambda _rows, _lines: None
    scored: Callable[[Tensor], None] = lambda _rows: None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    base: Path = Path()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    draws: Draws = field(default_factory=SecretDraws.fresh)
    state: State = field(default_factory=State)
    round: int = 0
    session: Session = field(default_factory=Session)
    identity: Identity | None = None
    run_cache: RunCache = field(default_factory=RunCache)
    steps: NoisySteps | None = None
    encoder: OwnEncoder | None = None
    answers: Callable[[Kind, int], Answers] = lambda kind, expected: Answers(None, "", PolicyConfig(), kind, expected)
    keyed: Callable[[PairKeys], None] = lambda _keys: None
    receipts: Receipts = field(default_factory=Receipts)
    ranks: Group | None = None
    _ranked: RankedBackprop | None = field(default=None, init=False)

    @property
    def table(self) -> Features:
        """The party's columns before encoding, for the rows of `features`, on the CPU.

        A table has float64: numbers, and places of words (`Features.fields`), with NaN for missing ones. Other sources
        have unscaled bytes or float64 of the shape of `features`. Raises TypeError if the protocol's config is not
        `typed`.
        """
        if self.features.table is None:
            raise TypeError(f"ctx.table: {type(self.federation.protocol).__name__} does not say typed = True")
        return self.features.table

    def model(self, width: int) -> nn.Module:
        return self.state.keep("model", lambda: self._build(width))

    def backprop(self, model: nn.Module) -> Backprop:
        """Forward and backward through the bottom model, with the party's own loss terms if any are agreed."""
        if self.steps is not None:
            assert isinstance(model, Shaped)  # noise on steps requires a region for the embeddings
            return NoisyBackprop(model, self.steps)
        through = ShapedBackprop(model) if isinstance(model, Shaped) else self._through(model)
        adjust = self.federation.adjust
        if not adjust.asked:
            return through
        return Adjusted(through, adjust, self.federation.outputs, self.state.keep("clusters", dict[str, Tensor]))

    def outputs(self, model: nn.Module, rows: Tensor) -> Tensor:
        """The bottom model's outputs for rows, in its current mode, without a gradient."""
        if self._ranked is not None and self._ranked.model is model:
            return self._ranked.evaluate(rows)
        with torch.no_grad():
            return cast("Tensor", model(rows))

    def head(self, width: int) -> nn.Module:
        return self.state.keep("head", lambda: self._build_head(width))

    def head_optimiser(self) -> torch.optim.Optimizer:
        """Optimiser of the prediction network; call `head` first."""
        make = lambda: build_optimiser(self.config.head_optimiser, self.state["head"].parameters())  # noqa: E731
        return self.state.keep("head optimiser", make)

    def optimiser(self) -> torch.optim.Optimizer:
        """Optimiser of the bottom model; call `model` first."""
        make = lambda: build_optimiser(self.config.optimiser, self.state["model"].parameters())  # noqa: E731
        return self.state.keep("optimiser", make)

    @property
    def own_code(self) -> list[str]:
        return user_parts(model=self.config.model, head=self.config.head)

    def sits_out(self, round: int) -> bool:
        """True if other parties were drawn for this training round, so that this one sends nothing."""
        return self.name not in self.schedule.participants(round)

    def _through(self, model: nn.Module) -> Backprop:
        """Backprop over all ranks of the party, if it has several."""
        if self.ranks is None:
            return backprop(model)
        owner, rows = f"parties.{self.name}", self.features.shape[0]
        if rows < self.ranks.size:
            raise ConfigError(
                f"{owner}.workers = {self.ranks.size}, for {rows} rows",
                hint="take no more workers than rows of a batch",
            )
        probe = self.features[torch.arange(min(PROBE * self.ranks.size, rows))]
        self._ranked = RankedBackprop(owner, self.ranks, self.config, model, probe)
        return self._ranked

    def _build(self, width: int) -> nn.Module:
        shape, owner, config = self.features.shape[1:], f"parties.{self.name}", self.config.model
        make = partial(bottom_model, owner, config, shape, width, base=self.base)
        model = make(self.draws.generator("model")).to(self.device)
        rows, plan = self.features[torch.arange(min(PROBE, self.features.shape[0]))], self.schedule.privacy
        if plan is not None and plan.config.protects == "embeddings":
            refuse_mixing(owner, model, rows if isinstance(config, UserModule) else None)
        self._probe(ModelProbe(f"{owner}.model", config, model, make, rows))
        return model if plan is None else plan.shaped(model, self.state, self.device)

    def _build_head(self, width: int) -> nn.Module:
        owner, outputs = f"parties.{self.name}.head", self.federation.outputs
        make = partial(build_head, self.config.head, width, outputs, base=self.base)
        try:
            head = make(self.draws.generator("head"))
        except ConfigError as error:
            raise ConfigError(f"{owner}: {error}", hint=error.hint) from error
        self._probe(ModelProbe(owner, self.config.head, head, make, head_rows(width)))
        return head.to(self.device)

    def _probe(self, probe: ModelProbe) -> None:
        """Warns of a model or head of other code. Raises ConfigError if it cannot learn."""
        by_gradients = not CONTRACTS[self.federation.protocol.name].exchange.one_number
        for said in probe.doubts(self.schedule.single_rows, by_gradients=by_gradients):
            self.warn(said)


def refuse_mixing(owner: str, model: nn.Module, rows: Tensor | None = None) -> None:
    """Refuses a model in which rows of a batch depend on each other: noise for one row would not be enough.

    `rows` test one of other code.
    """
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise ConfigError(
            f"{owner}.model normalises over batches: an embedding would depend on all rows of its batch, and "
            "federation.privacy.mechanism = adaptive protects each row by itself",
            hint="take a model without batch normalisation",
        )
    if rows is not None and (said := mixing(model, rows)):
        raise ConfigError(
            f"{owner}.model: {said}; federation.privacy.mechanism = adaptive protects each row by itself",
            hint="make what comes of a row a function of that row alone: no statistics of a batch, no attention over "
            "its rows, no memory of others, no draws but from torch's own generator",
        )
