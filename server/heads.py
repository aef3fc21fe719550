"""The heads that the server keeps."""

from __future__ import annotations

import torch
from torch import nn

from common.models.build import build_head
from common.models.heads import LinearHeadConfig
from server.context import ServerContext

_SEED_STRIDE = 1009  # parties draw from the same seed with offsets of their own: client/context.py


def joint_head(ctx: ServerContext, inputs: int) -> nn.Module:
    """theta_0, the one head over all embeddings laid side by side: (rows, inputs) -> (rows, classes)."""
    seed = ctx.federation.seed * _SEED_STRIDE
    return build_head(ctx.config.head, inputs, ctx.federation.outputs, seed, ctx.base).to(ctx.device)


def linear_heads(ctx: ServerContext, parties: int, width: int) -> nn.Parameter:
    """W_1 .. W_M as one parameter, float32 (parties, width, classes), each drawn as a linear layer's weight."""
    seed, classes = ctx.federation.seed * _SEED_STRIDE, ctx.federation.outputs
    drawn = [build_head(LinearHeadConfig(), width, classes, seed + 500 + seat) for seat in range(parties)]
    stacked = torch.stack([head.weight.detach().T for head in drawn])  # type: ignore[operator]
    return nn.Parameter(stacked.contiguous().to(ctx.device))
