"""Feature-space hijack: the server answers a party with gradients of its own task.

Pasquini, Ateniese and Bernaschi 2021, "Unleashing the Tiger: Inference Attacks on Split Learning": the server has rows
like the party's, and an encoder of them that it can invert. It sends gradients that move the party's embeddings into
the encoder's feature space, and decodes what arrives. In the paper the server's rows are not the party's, so a
discriminator compares two sets. Here, as in the other attacks on features, the server knows some training rows: it
steers each of them to its own code and sends zero gradients for the others. The head learns from the embeddings that
arrive, and other parties get honest answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.errors import InputError
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext
from colonnade_lab.attacks.inversion import Inversion, known_rows, reconstruct
from colonnade_lab.attacks.predictions import of_training
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.attacks.simulated import Deviation, deviating

_LONGER = 3.0  # codes, than a party's first embeddings: found on the digits


@dataclass(frozen=True)
class Hijack:
    """Inversions after training with the dishonest server, and with the honest one; accuracies of the joint models."""

    hijacked: Inversion
    honest: Inversion
    test_accuracy: float | None
    honest_accuracy: float | None


class AuxiliaryEncoder:
    """Principal components of the known rows, which give the linear code of least error for a width.

    If a party's embeddings are never negative, as after a ReLU, each component takes two entries: its positive and its
    negative part.

    Args:
        x: known rows, float32 (n, ...).
        most: an upper bound of all row numbers.
    """

    def __init__(self, x: Tensor, rows: Tensor, most: int, gain: float = 1.0) -> None:
        centred = x.flatten(1) - x.flatten(1).mean(0)
        _, _, basis = torch.linalg.svd(centred, full_matrices=False)
        self._components, self._gain = centred @ basis.T, gain
        self._place = torch.full((most,), -1, dtype=torch.int64)
        self._place[rows] = torch.arange(len(rows))
        self._codes: Tensor | None = None

    def answer(self, batch: Tensor, h: Tensor) -> Tensor:
        """Returns the gradient of the mean of gain |h - code|^2 / 2 over the batch, 0 at unknown rows."""
        if self._codes is None:
            self._codes = self._fitting(h)
        place = self._place[batch]
        found: Tensor = self._gain * (place >= 0)[:, None] * (h - self._codes[place]) / len(batch)
        return found

    def _fitting(self, h: Tensor) -> Tensor:
        """Returns codes with the width, the sign and the mean length of a party's first embeddings."""
        width = h.shape[1]
        if bool((h >= 0).all()):
            some = self._components[:, : width // 2]
            codes = torch.cat([some.clamp(min=0), (-some).clamp(min=0)], dim=1)
        else:
            codes = self._components[:, :width]
        codes = functional.pad(codes, (0, width - codes.shape[1]))
        factor = _LONGER * float(h.norm(dim=1).mean() / codes.norm(dim=1).mean().clamp(min=1e-12))
        return codes * factor


def hijacking(protocol: str, party: str, encoder: AuxiliaryEncoder) -> Deviation:
    async def serve(ctx: ServerContext, clients: Cohort, cfg: Any) -> None:
        collect, broadcast = clients.collect, clients.broadcast
        sent: dict[int, Tensor] = {}

        async def collecting(kind: Any, round: int, *how: Any, **more: Any) -> Any:
            responses = await collect(kind, round, *how, **more)
            if party in responses and "part" not in kind.__dataclass_fields__:  # a training message, not an evaluation
                sent[round] = responses[party].h
            return responses

        async def broadcasting(what: Any) -> None:
            answer: Any = what.get(party) if isinstance(what, Mapping) else None
            if hasattr(answer, "dh"):
                h = sent.pop(answer.round)
                dh = encoder.answer(ctx.schedule.batch(answer.round), h)
                what = {**what, party: replace(answer, dh=dh)}
            await broadcast(what)

        clients.collect = collecting  # type: ignore[method-assign]
        clients.broadcast = broadcasting  # type: ignore[method-assign]
        await SERVE[protocol](ctx, clients, cfg)

    return serve


def hijack(run: AttackedRun, party: str, known: float, seed: int) -> Hijack:
    """Simulates the run with a deviating server, then inverts the party's messages.

    The server knows the features of `known`, a share of the training rows.
    """
    _refuse(run)
    rows, parts = of_training(run)
    place = run.config.federation.names.index(party)
    have, rest = known_rows(party, len(rows), known, seed)
    x, y = run.columns(party)[rows], run.labels[rows]

    def inverted(said: Tensor) -> Inversion:
        said = said.flatten(1)
        return reconstruct(said[have], said[rest], x[have], x[rest], y[have], y[rest], seed=seed)

    honest = inverted(parts[place])
    steps = run.config.federation.protocol.local_steps_taken  # a party's steps per gradient
    encoder = AuxiliaryEncoder(x[have], rows[have], len(run.labels), 1 / steps)
    with deviating(run, {SERVER: hijacking(run.protocol, party, encoder)}) as other:
        found = inverted(of_training(other)[1][place])
        accuracies = (one.summary["metrics"].get("test_accuracy") for one in (other, run))
        return Hijack(found, honest, *accuracies)


def _refuse(run: AttackedRun) -> None:
    protocol = run.config.federation.protocol
    fields = {field for kind in CONTRACTS[run.protocol].kinds.values() for field in kind.__dataclass_fields__}
    if not run.opens or not {"h", "dh"} <= fields or protocol.blinded:
        raise InputError(
            f"{run.protocol}: the server sends no gradients of one party's embeddings",
            hint="take a run of split, vfl_afe, split_avg, fedbcd or vafl, in which embeddings are not blinded",
        )
    if protocol.asynchronous:
        raise InputError(
            "federation.protocol.arrivals = true: the hijack answers whole rounds",
            hint="take a run with arrivals: false",
        )
