"""Shares for the other parties, sealed for each, and theirs for us: a party's end of one exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from client.context import ClientContext
from common.conversation import SERVER, Link
from common.crypto.sealing import OVERHEAD, SealError, Seals
from common.errors import ContractError
from common.protocols.fedvs import Bundle, Shares
from common.raw import take_apart, to_bytes, to_tensor


@dataclass(frozen=True)
class Exchange:
    """Gives every other party its share, and takes ours from each.

    Args:
        ctx, server: of the half.
        seals: between this party and every other.
    """

    ctx: ClientContext
    server: Link
    seals: Seals

    async def __call__(
        self, purpose: str, round: int, stage: int, shares: Tensor, sizes: Mapping[str, int]
    ) -> dict[str, Tensor] | None:
        """Sends shares and waits for the bundle of the others'.

        Args:
            purpose: of the shares, to which the boxes are bound, with round and stage.
            shares: one for each party in the roster's order, int32 (parties, elements); ours is among them.
            sizes: elements of everybody's shares.

        Returns:
            Those that could be opened, int32 (elements,) by sender, our own among them; None if the
            server has gone on without us.

        Raises:
            ContractError: the bundle is malformed.
        """
        names, me = self.ctx.federation.names, self.ctx.name
        boxes = [
            to_tensor(self.seals.seal(name, to_bytes(share.contiguous().view(torch.uint8)), purpose, round, stage))
            for name, share in zip(names, shares, strict=True)
            if name != me
        ]
        sealed = torch.stack(boxes) if boxes else torch.empty(0, 0, dtype=torch.uint8)
        await self.server.send(Shares(round, stage, self.ctx.conceal(sealed, f"{purpose} shares, sealed")))
        bundle = await self.server.recv(Bundle, round, parties=len(names))
        if bundle is None:
            return None
        if bundle.stage != stage:
            raise ContractError(SERVER, "Bundle", "stage", str(stage), str(bundle.stage))
        opened = self._open(purpose, bundle, sizes)
        opened[me] = shares[names.index(me)]
        return opened

    def _open(self, purpose: str, bundle: Bundle, sizes: Mapping[str, int]) -> dict[str, Tensor]:
        names = self.ctx.federation.names
        try:
            boxes = dict(zip(names, take_apart(bundle.boxes, bundle.lengths), strict=True))
        except ValueError as wrong:
            raise ContractError(SERVER, "Bundle", "lengths", str(wrong), "others") from None
        opened: dict[str, Tensor] = {}
        for name, box in boxes.items():
            if name == self.ctx.name or not len(box):
                continue
            try:
                opened[name] = self._open_one(purpose, bundle, name, box, sizes[name])
            except SealError as altered:
                self.ctx.warn(f"round {bundle.round}: {altered}")
        return opened

    def _open_one(self, purpose: str, bundle: Bundle, name: str, box: Tensor, size: int) -> Tensor:
        if len(box) != 4 * size + OVERHEAD:
            raise SealError(f"{name!r} has sealed {len(box)} bytes, not {4 * size + OVERHEAD}")
        content = self.seals.open(name, to_bytes(box), purpose, bundle.round, bundle.stage)
        return to_tensor(content).view(torch.int32)
