"""Active model completion: a party makes the joint model rely on its own part.

Fu et al. 2022, "Label Inference Attacks Against Vertical Federated Learning", Section 4.2: the party uses an optimiser
that lengthens a step wherever a gradient keeps its sign. Its embeddings change faster than the others', the head
follows them, and the bottom model learns more about the labels. Its messages look like any others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade_lab.attacks.active.deviation import Deviation, Simulate, deviating
from colonnade_lab.attacks.completion import Completion, complete
from colonnade_lab.attacks.run import AttackedRun

_GAIN, _MOST = 1.0, 5.0  # gamma and r_max of the paper


class Hastened:
    """Optimiser that scales each gradient entry by 1 + gain * g / g_before, clamped to 1 to 5, before a step."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self._inner, self.param_groups = inner, inner.param_groups
        self._before: dict[int, Tensor] = {}

    def zero_grad(self, *args: Any, **named: Any) -> None:
        self._inner.zero_grad(*args, **named)

    def step(self) -> None:
        for parameter in (one for group in self.param_groups for one in group["params"]):
            if parameter.grad is None:
                continue
            now = parameter.grad.detach().clone()
            if (before := self._before.get(id(parameter))) is not None:
                sure = before + before.sign() * 1e-7
                parameter.grad *= (1 + _GAIN * now / sure).nan_to_num(nan=1.0).clamp(1.0, _MOST)
            self._before[id(parameter)] = now
        self._inner.step()


def hastening(protocol: str) -> Deviation:
    async def participate(ctx: ClientContext, server: Link, cfg: Any) -> None:
        own = ctx.optimiser
        ctx.optimiser = lambda: Hastened(own())  # type: ignore[method-assign, assignment, return-value]
        await PARTICIPATE[protocol](ctx, server, cfg)

    return participate


def complete_actively(
    run: AttackedRun, party: str, known: int, seed: int, simulate: Simulate
) -> tuple[Completion, Completion, float | None]:
    """Completes a party's model as it is, and as it would be with the malicious optimiser.

    Returns:
        Passive and active completion, and the test accuracy of the run in which the party deviates.
    """
    passive = complete(run, party, known, seed)
    with deviating(run, {party: hastening(run.protocol)}, simulate) as other:
        return passive, complete(other, party, known, seed), other.summary["metrics"].get("test_accuracy")
