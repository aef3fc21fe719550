"""Heads that the server keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from colonnade.common.config.models import JointHeadConfig, MlpHeadConfig, PartyHeadConfig
from colonnade.common.models.admm import head_gradients
from colonnade.common.models.build import build_agreed_head, build_head
from colonnade.common.models.heads import xavier
from colonnade.common.models.local_steps import Descent
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.models.probes import ModelProbe, head_rows
from colonnade.server.training.context import ServerContext


def joint_head(ctx: ServerContext, inputs: int) -> nn.Module:
    """theta_0, one head over all embeddings concatenated: (rows, inputs) -> (rows, classes)."""
    make = partial(build_head, ctx.config.head, inputs, ctx.federation.outputs, base=ctx.base)
    head = make(ctx.draws.generator("head")).to(ctx.device)
    probe = ModelProbe("server.head", ctx.config.head, head, make, head_rows(inputs).to(ctx.device))
    for said in probe.doubts(ctx.schedule.single_rows):
        ctx.warn(said)
    return head


def agreed_head(ctx: ServerContext, config: JointHeadConfig, inputs: int) -> nn.Module:
    """theta_0 of an agreed shape: the parties receive it and compute with it too."""
    dropout = ctx.state.keep("dropout", lambda: ctx.draws.generator("dropout"))
    start = ctx.draws.generator("head")
    return build_agreed_head(config, inputs, ctx.federation.outputs, dropout, start).to(ctx.device)


def linear_heads(ctx: ServerContext, parties: int, width: int) -> nn.Parameter:
    """W_1 .. W_M as one parameter, float32 (parties, width, classes).

    Drawn from Xavier's uniform distribution, twice as wide as a linear layer's default: local models follow
    their head's gradient, and with the narrower one MNIST ends 0.3 points lower (docs/protocols/vimadmm.md).
    """
    drawn = [xavier(width, ctx.federation.outputs, start) for start in ctx.draws.each("head", parties)]
    return nn.Parameter(torch.stack(drawn).to(ctx.device))


class LinearHeads:
    """g(h; W_k) = h W_k for every party k; heads and optimiser are in the state."""

    def __init__(self, ctx: ServerContext, parties: int, width: int) -> None:
        self._heads = heads = ctx.state.keep("heads", lambda: linear_heads(ctx, parties, width))
        self._optimiser = ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, [heads]))

    def logits(self, h: Tensor) -> Tensor:
        """g(h_k; W_k), (parties, rows, width) -> (parties, rows, classes)."""
        return torch.bmm(h, self._heads.detach())

    def first(self) -> list[Tensor]:
        """W_1 .. W_M, (width, classes) each."""
        return list(self._heads.detach())

    def step(self, h: Tensor, signal: Tensor, rho: float | None = None) -> None:
        """Steps every W_k, given the gradient (rows, classes) at the sum of the logits; rho bounds the step."""
        self._heads.grad = head_gradients(h, self._heads.detach(), signal)
        if rho is not None:
            _bound(self._optimiser, lambda: self.logits(h).sum(0), rho)
        self._optimiser.step()

    def flat(self, index: int) -> Tensor:
        """W_k row by row, (width * classes)."""
        return self._heads[index].detach().flatten()


class MlpHeads:
    """g(h; W_k), an MLP for every party k; heads, optimiser and dropout generator are in the state."""

    def __init__(self, ctx: ServerContext, config: MlpHeadConfig, parties: int, width: int) -> None:
        classes = ctx.federation.outputs
        dropout = ctx.state.keep("dropout", lambda: ctx.draws.generator("dropout"))
        starts = [ctx.draws.generator("head", index) for index in range(parties)]
        built = nn.ModuleList(build_agreed_head(config, width, classes, dropout, start) for start in starts)
        self._heads = heads = ctx.state.keep("heads", lambda: built.to(ctx.device))
        make = lambda: build_optimiser(ctx.config.optimiser, heads.parameters())  # noqa: E731
        self._optimiser = ctx.state.keep("optimiser", make)

    def logits(self, h: Tensor) -> Tensor:
        """g(h_k; W_k) without dropout, (parties, rows, width) -> (parties, rows, classes)."""
        self._heads.eval()
        with torch.no_grad():
            return self._all(h)

    def first(self) -> list[Tensor]:
        """Every head's first layer, (width, outputs) each."""
        firsts = (next(layer for layer in head.modules() if isinstance(layer, nn.Linear)) for head in self._heads)
        return [layer.weight.detach().T for layer in firsts]

    def step(self, h: Tensor, signal: Tensor, rho: float | None = None) -> None:
        """Steps every W_k under dropout, given the gradient (rows, classes) at the sum of the logits."""
        self._heads.train()
        self._optimiser.zero_grad()
        with torch.enable_grad():
            torch.autograd.backward(self._all(h).sum(0), signal)
        if rho is not None:
            _bound(self._optimiser, lambda: self.logits(h).sum(0), rho)
        self._optimiser.step()

    def flat(self, index: int) -> Tensor:
        """W_k layer by layer, weight (out, in) and then bias."""
        return nn.utils.parameters_to_vector(self._heads[index].parameters()).detach()

    def _all(self, h: Tensor) -> Tensor:
        return torch.stack([head(part) for head, part in zip(self._heads, h, strict=True)])


def _bound(optimiser: torch.optim.Optimizer, total: Callable[[], Tensor], rho: float) -> None:
    """Shortens an SGD step that would overshoot the batch's minimum."""
    descent = Descent(optimiser)
    descent.begin(total(), total, rho)
    descent.shorten()


PartyHeads = LinearHeads | MlpHeads


def party_heads(ctx: ServerContext, config: PartyHeadConfig, parties: int, width: int) -> PartyHeads:
    if isinstance(config, MlpHeadConfig):
        return MlpHeads(ctx, config, parties, width)
    return LinearHeads(ctx, parties, width)
