"""Codes, party side. The box: common/protocols/codes.py."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from colonnade.client.privacy.codes import unprotected
from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import Local
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.privacy.encoders import CodeBook, encoder_inputs, inputs_of_rows
from colonnade.common.protocols.codes import (
    Beliefs,
    Codes,
    Config,
    Counts,
    Evaluation,
    Groups,
    Labels,
    Lessons,
    codes_of,
    counted,
)


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Trains an encoder once it has all labels, and releases a code for every row."""
    weights, known = _weights(ctx)
    encoder = ctx.encoder or unprotected(ctx.schedule.partition.train, ctx.draws, cfg)
    coder = _Coder(ctx, weights)
    async for t in server.rounds(after=ctx.round):
        if (targets := await _targets(ctx, server, t)) is None:  # the server went on without us: follow it
            continue
        if not known:
            if not len(targets):
                continue
            inputs = inputs_of_rows(ctx.features.__getitem__, ctx.schedule.partition.train)
            weights.copy_(encoder.train(inputs, targets, cfg.lr))  # 2
            known["trained"] = True
        if counted(ctx.federation) and not await _group(ctx, server, t, coder, known):
            continue
        batch = ctx.schedule.batch(t)
        await server.send(Codes(t, ctx.release(coder(ctx.features[batch]), rows=batch)))  # 3
        await evaluate(ctx, server, t, coder, partial(Evaluation, t))


def local(ctx: ClientContext, _cfg: Config) -> Local:
    """A row's code, one-hot, by the encoder of the state."""
    return Local(_Coder(ctx, _weights(ctx)[0], torch.float32))


def _weights(ctx: ClientContext) -> tuple[Tensor, dict[str, bool]]:
    """theta_k, float64 (inputs, classes), and a record that is empty until it is trained; both in the state."""
    inputs = encoder_inputs(ctx.features[torch.zeros(1, dtype=torch.int64)].cpu()).shape[1]
    make = lambda: torch.zeros(inputs, ctx.federation.outputs, dtype=torch.float64)  # noqa: E731
    return ctx.state.keep("weights", make), ctx.state.keep("encoder", dict[str, bool])


async def _group(ctx: ClientContext, server: Link, round: int, coder: _Coder, known: dict[str, bool]) -> bool:
    """Sends the counts until the server has answered with groups; False if the server has moved on."""
    if "grouped" in known:
        return True
    classes = ctx.federation.outputs
    await server.send(Counts(round, ctx.release(torch.zeros(classes, classes, dtype=torch.int64))))
    groups = await server.recv(Groups, round, classes=classes)
    if groups is None:
        return False
    if not bool(((groups.g >= 0) & (groups.g < codes_of(ctx.federation))).all()):
        raise ContractError(SERVER, "Groups", "g", f"0 to {codes_of(ctx.federation) - 1}", str(groups.g.tolist())[:100])
    coder.groups.copy_(groups.g)
    known["grouped"] = True
    return True


async def _targets(ctx: ClientContext, server: Link, round: int) -> Tensor | None:
    """Receives what the server reveals about the training rows' labels in a round.

    Returns:
        A probability of every class, float64 (rows, classes), with no rows if the server reveals nothing; None if it
        has moved on.

    Raises ContractError if labels of only some rows are announced, or blocks come out of order.
    """
    classes, found = ctx.federation.outputs, [torch.zeros(0, ctx.federation.outputs, dtype=torch.float64)]
    blocks = torch.split(ctx.schedule.partition.train, ctx.federation.batch)
    if (lessons := await server.recv(Lessons, round)) is None:
        return None
    if lessons.blocks not in (0, len(blocks)):
        raise ContractError(SERVER, "Lessons", "blocks", f"0 or {len(blocks)}", str(lessons.blocks))
    for number, block in enumerate(blocks[: lessons.blocks]):
        wide = {"rows": len(block), "classes": classes}
        kinds: dict[type[Message], dict[str, int]] = {Labels: {"rows": len(block)}, Beliefs: wide}
        came = await server.recv_one(kinds, round)
        if not isinstance(came, Labels | Beliefs):
            return None
        if came.block != number:
            raise ContractError(SERVER, type(came).__name__, "block", str(number), str(came.block))
        found.append(_probabilities(came, classes))
    return torch.cat(found)


def _probabilities(labels: Labels | Beliefs, classes: int) -> Tensor:
    """float64 (rows, classes). Out-of-range values are clamped: gradients are clipped anyway."""
    if isinstance(labels, Beliefs):
        return labels.y.double().clamp(0, 1)
    return nn.functional.one_hot(labels.y.clamp(0, classes - 1), classes).double()


class _Coder(nn.Module):
    """One-hot codes of rows by an encoder: (rows, ...) -> (rows, codes)."""

    def __init__(self, ctx: ClientContext, weights: Tensor, dtype: torch.dtype = torch.uint8) -> None:
        super().__init__()
        book = CodeBook(ctx.federation.outputs, codes_of(ctx.federation), ctx.federation.names.index(ctx.name))
        self.groups: Tensor = ctx.state.keep("groups", lambda: book.groups)
        self._book = replace(book, given=self.groups)
        self._weights, self._dtype = weights, dtype

    def forward(self, x: Tensor) -> Tensor:
        """Float32 (rows, ...) -> (rows, codes), in the dtype of the coder."""
        codes = self._book.of((encoder_inputs(x.cpu()).double() @ self._weights.cpu()).softmax(1))
        return nn.functional.one_hot(codes, self._book.codes).to(self._dtype)
