"""The heads that the server keeps."""

from __future__ import annotations

from torch import nn

from common.models.build import build_head
from common.models.heads import xavier
from server.context import ServerContext

_SEED_STRIDE = 1009  # parties draw from the same seed with offsets of their own: client/context.py


def joint_head(ctx: ServerContext, inputs: int) -> nn.Module:
    """theta_0, the one head over all embeddings laid side by side: (rows, inputs) -> (rows, classes)."""
    seed = ctx.federation.seed * _SEED_STRIDE
    return build_head(ctx.config.head, inputs, ctx.federation.outputs, seed, ctx.base).to(ctx.device)


def linear_heads(ctx: ServerContext, parties: int, width: int) -> nn.Parameter:
    """W_1 .. W_M as one parameter, float32 (parties, width, classes).

    Xavier's uniform distribution, twice as wide as a linear layer's own: local models follow what
    their head says, and with the smaller one MNIST ends 0.3 points lower (docs/protocols/vimadmm.md).
    """
    seed = ctx.federation.seed * _SEED_STRIDE
    return nn.Parameter(xavier(width, ctx.federation.outputs, seed, parties).to(ctx.device))
