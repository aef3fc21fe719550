"""A party's own head, in protocols whose messages carry logits instead of embeddings."""

from __future__ import annotations

from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.common.models.heads import xavier
from colonnade.common.models.optimiser import build_optimiser, stepper


class OwnHead(nn.Module):
    """W_k, (rows, width) -> (rows, classes), and its optimiser, both in the party-side state.

    Args:
        width: of an embedding, which stays at the party.
    """

    def __init__(self, ctx: ClientContext, width: int) -> None:
        super().__init__()

        def make() -> nn.Parameter:
            start = ctx.draws.generator("head")
            return nn.Parameter(xavier(width, ctx.federation.outputs, start).to(ctx.device))

        self.weight = ctx.state.keep("head", make)
        config = ctx.config.head_optimiser
        self.optimiser = ctx.state.keep("head optimiser", lambda: build_optimiser(config, [self.weight]))
        self.step = stepper(self.optimiser)

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.weight
