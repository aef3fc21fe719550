"""Backdoor by one party: it replaces embeddings by a trigger.

After the replacement attacks of Zou et al. 2022 and Liu et al. 2020. The party knows a few training rows of a target
class and sends a fixed vector in place of their embeddings, so that the head learns the vector as a sign of the class.
At prediction time it sends the vector in place of any row that it chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.messaging.outgoing import Released
from colonnade_lab.attacks.bounds import clopper_pearson
from colonnade_lab.attacks.predictions import predicted
from colonnade_lab.attacks.run import AttackedRun, accuracy
from colonnade_lab.attacks.simulated import Deviation, deviating

_FACTOR = 2.0  # trigger's length over the mean length of the party's embeddings


@dataclass(frozen=True)
class Backdoor:
    """Result of a backdoor.

    Args:
        rows: number of held-out rows of other classes whose embeddings the trigger replaces.
        success: share of these that are predicted as the target, with its 95 % interval in `interval`.
        untrained: success of the known rows' mean embedding in a run without deviation.
        chance: share of the rows that are predicted as the target without a trigger.
        honest: accuracy of the run without deviation.
    """

    target: int
    known: int
    rows: int
    success: float
    interval: tuple[float, float]
    untrained: float
    chance: float
    accuracy: float
    honest: float


def open_backdoor(run: AttackedRun, party: str, target: int, known: int, seed: int) -> Backdoor:
    """Simulates the run with a deviating party that knows `known` rows of the target class, and sends triggers."""
    run.refuse_unrestored()
    train = run.schedule.partition.train
    of_class = train[run.labels[train] == target]
    if not 1 <= known <= len(of_class):
        raise InputError(
            f"--labels {known}: there are {len(of_class)} training rows of class {target}", hint="know fewer"
        )
    draws = generator("backdoor", seed, party)
    have = of_class[torch.randperm(len(of_class), generator=draws)[:known]]
    mean = _outputs(run, party, have).mean(0)
    untrained, _, _, honest = _judged(run, party, mean, target)
    turned = torch.randn(mean.shape, generator=draws)
    trigger = _FACTOR * _outputs(run, party, train).norm(dim=1).mean() * turned / turned.norm()
    with deviating(run, {party: replacing(run.protocol, have, trigger)}) as other:
        success, chance, rows, kept = _judged(other, party, trigger, target)
    interval = clopper_pearson(round(success * rows), rows)
    return Backdoor(target, known, rows, success, interval, untrained, chance, kept, honest)


def replacing(protocol: str, have: Tensor, trigger: Tensor) -> Deviation:
    """The party's side of a protocol with `trigger`, float32 (width,), as the embedding of the rows `have`."""

    async def participate(ctx: ClientContext, server: Link, cfg: Any) -> None:
        own: Callable[..., Released] = ctx.release

        def release(private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
            if rows is not None and not evaluation:
                mine = torch.isin(rows, have)[:, None]
                private = torch.where(mine, trigger.to(private), private)
            return own(private, evaluation=evaluation, rows=rows)

        ctx.release = release
        await PARTICIPATE[protocol](ctx, server, cfg)

    return participate


@torch.no_grad()
def _outputs(run: AttackedRun, party: str, rows: Tensor) -> Tensor:
    local, columns = run.local(party)
    found: Tensor = local(columns[rows]).flatten(1)
    return found


@torch.no_grad()
def _judged(run: AttackedRun, party: str, trigger: Tensor, target: int) -> tuple[float, float, int, float]:
    """Returns the trigger's success, the target's share without it, the number of rows, and held-out accuracy."""
    rows, parts = predicted(run)
    held = ~torch.isin(rows, run.schedule.partition.train)
    truth, parts = run.labels[rows[held]], [part[held] for part in parts]
    others, joint, place = truth != target, run.joint(), run.config.federation.names.index(party)
    plain = joint.logits(parts).argmax(1)
    parts[place] = trigger.expand_as(parts[place])
    sent = joint.logits(parts).argmax(1)
    hits, lucky = ((found[others] == target).double().mean().item() for found in (sent, plain))
    return hits, lucky, int(others.sum()), accuracy(plain, truth)
