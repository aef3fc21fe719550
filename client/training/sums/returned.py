"""A party's sums over its own matrix that the server returns, after a probe of the hint."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import torch

from colonnade.client.training.context import ClientContext
from colonnade.client.training.sums.session import PartySums
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.encryption.linear import PartyMatrix
from colonnade.common.encryption.messages import (
    NONCE,
    PROBE,
    MaskedSums,
    Masks,
    OpenedSums,
    ProbeDigest,
    ProbeSeed,
    ProbeSums,
)
from colonnade.common.encryption.parameters import PROBES
from colonnade.common.encryption.probe import ProbeAnswer
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.outgoing import MaskedTensor


class OwnSums:
    """One session's sums over the party's own matrix. Arguments as of `PartySums`."""

    def __init__(
        self, ctx: ClientContext, server: Link, matrix: PartyMatrix, *, encrypted: bool = True, weight: int = 1
    ) -> None:
        self._ctx, self._server, self._bins, self._encrypted = ctx, server, matrix.shape[0], encrypted
        self._sums, self._opened = PartySums(ctx, server, matrix, encrypted=encrypted, weight=weight), False

    async def open(self, round: int) -> bool:
        """Opens the session, and answers the probe; False if the server has moved on."""
        if not self._opened:
            self._opened = await self._sums.open(round, (self._bins,), (0,))
            self._opened = self._opened and (not self._encrypted or await self._probe(round))
        return self._opened

    async def sums(self, round: int, count: int, level: int = 0) -> tuple[np.ndarray, float] | None:
        """Sums of the server's next vectors over the matrix, float64 (bins, count), and the factor of the steps.

        Args:
            level: tells apart the sums of a round.
        """
        masks = await self._masks(round, level, count)
        if masks is None or (answer := await self._sums.add_up(round, masks)) is None:
            return None
        words, mask = answer.masked()
        hidden = MaskedTensor(torch.from_numpy(words.view(np.int64)), "sums over own bins, under a mask")
        await self._server.send(MaskedSums(round, self._ctx.admit_masked(hidden)))
        opened = await self._server.recv(OpenedSums, round, bins=self._bins, vectors=count)
        if opened is None:
            return None
        units = opened.units.numpy()
        if not (np.isfinite(units).all() and (units > 0).all()):
            raise ContractError(SERVER, "OpenedSums", "units", "numbers above 0", str(units)[:100])
        if not 0 < opened.rate <= 1:
            raise ContractError(SERVER, "OpenedSums", "rate", "above 0 and at most 1", str(opened.rate))
        try:
            found = self._sums.rounded(opened.y.numpy().view(np.uint64) - mask)
        except InputError as wrong:
            raise ContractError(SERVER, "OpenedSums", "y", "sums under our mask", str(wrong)) from None
        return found * units, opened.rate

    async def _masks(self, round: int, level: int, count: int) -> Masks | None:
        masks = await self._server.recv(Masks, round, degree=self._sums.degree, vectors=count)
        if masks is not None and masks.level != level:
            raise ContractError(SERVER, "Masks", "level", str(level), str(masks.level))
        return masks

    async def _probe(self, round: int) -> bool:
        masks = await self._masks(round, PROBE, PROBES)
        if masks is None:
            return False
        received = sha256(masks.d.numpy().tobytes())
        answer = await self._sums.add_up(round, masks, lambda c: received.update(c.data))
        if answer is None:
            return False
        probe = ProbeAnswer(self._sums.size, self._sums.public, answer, received.digest())
        await self._server.send(ProbeDigest(round, torch.frombuffer(bytearray(probe.digest), dtype=torch.uint8)))
        seed = await self._server.recv(ProbeSeed, round, nonce=NONCE)
        if seed is None:
            return False
        try:
            y = probe.open(seed.seed.numpy().tobytes())
        except InputError as wrong:
            raise ContractError(SERVER, "ProbeSeed", "seed", "that of the vectors before", str(wrong)) from None
        await self._server.send(ProbeSums(round, self._ctx.release(torch.from_numpy(y.view(np.int64)))))
        return True
