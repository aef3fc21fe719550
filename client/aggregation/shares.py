"""Exchange of sealed shares with the other parties, party side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.lengths import OVERHEAD
from colonnade.common.crypto.sealing import SealError, Seals
from colonnade.common.errors import ContractError
from colonnade.common.messaging.raw import to_tensor
from colonnade.common.protocols.fedvs import Bundle, Shares


@dataclass(frozen=True)
class ShareExchange:
    """Sends every other party its share, and receives ours from each."""

    ctx: ClientContext
    server: Link
    seals: Seals

    async def __call__(
        self, purpose: str, round: int, stage: int, shares: Tensor, sizes: Mapping[str, int], about: bytes
    ) -> dict[str, Tensor] | None:
        """Sends shares and waits for the bundle of the other parties' shares.

        Args:
            purpose: boxes are bound to it, to the round and to the stage.
            shares: one for each party in roster order, ours included, int32 (parties, elements).
            sizes: elements of every party's shares.
            about: hash of what the shares are for: a receiver that was told otherwise cannot open them.

        Returns:
            The shares that could be opened and our own, int32 (elements,) by sender; None if the server has moved on
            without us.
        """
        names, me = self.ctx.federation.names, self.ctx.name
        rows = shares.contiguous().view(torch.uint8).numpy()
        others = {name: row.data for name, row in zip(names, rows, strict=True) if name != me}
        sealed = self.seals.boxes(others, purpose, round, stage, about=about)
        for to, box in zip(others, sealed.numpy(), strict=True):
            self.ctx.receipts.sent(to, round, stage, box.data)
        await self.server.send(Shares(round, stage, self.ctx.admit_masked(sealed)))
        bundle = await self.server.recv(Bundle, round, parties=len(names))
        if bundle is None:
            return None
        if bundle.stage != stage:
            raise ContractError(SERVER, "Bundle", "stage", str(stage), str(bundle.stage))
        opened = self._open(purpose, bundle, sizes, about)
        opened[me] = shares[names.index(me)]
        return opened

    def _open(self, purpose: str, bundle: Bundle, sizes: Mapping[str, int], about: bytes) -> dict[str, Tensor]:
        names, lengths = self.ctx.federation.names, bundle.lengths.tolist()
        if any(length < 0 for length in lengths) or sum(lengths) != len(bundle.boxes):
            expected = f"lengths that add up to {len(bundle.boxes)} bytes"
            raise ContractError(SERVER, "Bundle", "lengths", expected, str(lengths))
        boxes, at = bundle.boxes.numpy().data, 0
        opened: dict[str, bytes] = {}
        for name, length in zip(names, lengths, strict=True):
            box, at = boxes[at : at + length], at + length
            if name == self.ctx.name:
                continue
            if length:
                try:
                    opened[name] = self._open_one(purpose, bundle, name, box, 4 * sizes[name], about)
                except SealError as altered:
                    self.ctx.warn(f"round {bundle.round}: {altered}")
            self.ctx.receipts.received(name, bundle.round, bundle.stage, box if name in opened else None)
        elements = to_tensor(b"".join(opened.values())).view(torch.int32)
        return dict(zip(opened, torch.split(elements, [sizes[name] for name in opened]), strict=True))

    def _open_one(self, purpose: str, bundle: Bundle, name: str, box: memoryview, size: int, about: bytes) -> bytes:
        if len(box) != size + OVERHEAD:
            raise SealError(f"{name!r} has sealed {len(box)} bytes, not {size + OVERHEAD}")
        return self.seals.open(name, box, purpose, bundle.round, bundle.stage, about=about)
