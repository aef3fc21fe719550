"""The view of all members but one, who know the joint model and see its predictions.

Luo, Wu, Xiao and Ooi 2021, "Feature Inference Attack on Model Predictions in Vertical Federated Learning": the parties
that ask for a prediction hold the trained model, their own columns and the confidences. They see no message in the
clear.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.client.training.local import Local
from colonnade.common.errors import InputError
from colonnade.server.training.fusion.joint import Joint
from colonnade_lab.attacks.predictions import predicted
from colonnade_lab.attacks.run import AttackedRun


@dataclass(frozen=True)
class Coalition:
    """Predictions of training rows, and everything but one party's columns.

    Args:
        joint: the server's part of the model.
        place: the victim's place in the roster.
        parts: every party's output, float32 (n, width) each; the victim's is not used.
        logs: logarithms of the predicted confidences, each row centred at 0, float32 (n, classes).
        x: the victim's columns, which are the truth, float32 (n, ...).
    """

    joint: Joint
    local: Local
    place: int
    rows: Tensor
    parts: list[Tensor]
    logs: Tensor
    x: Tensor

    @property
    def inputs(self) -> Tensor:
        """Returns the other parties' outputs and the logarithms side by side, on one scale, (n, widths + classes)."""
        own = torch.cat([part.flatten(1) for place, part in enumerate(self.parts) if place != self.place], dim=1)
        return torch.cat([own, self.logs * own.std() / self.logs.std().clamp(min=1e-12)], dim=1)

    def predict(self, free: Tensor, places: Tensor) -> Tensor:
        """Returns logarithms of the confidences for other victim columns, float32 (m, classes).

        Args:
            free: the victim's columns, float32 (m, numbers of a row).
            places: of the rows in `rows`, int64 (m,).
        """
        parts = [part[places] for part in self.parts]
        parts[self.place] = self.local(free.view(-1, *self.x.shape[1:]))
        return centred(self.joint.logits(parts))


def view(run: AttackedRun, party: str) -> Coalition:
    """Returns what the other members hold after training."""
    if not run.opens:
        raise InputError(f"{run.protocol}: its model cannot be restored", hint="take another run")
    rows, parts = predicted(run)
    count = int(torch.isin(rows, run.schedule.partition.train).sum())  # training rows come first
    joint, (local, columns) = run.joint(), run.local(party)
    local.requires_grad_(requires_grad=False)
    rows, parts = rows[:count], [part[:count] for part in parts]
    with torch.no_grad():
        logs = centred(joint.logits(parts))
    return Coalition(joint, local, run.config.federation.names.index(party), rows, parts, logs, columns[rows])


def centred(logits: Tensor) -> Tensor:
    """Centres each row at 0, after which logits and logarithms of confidences are equal."""
    return logits - logits.mean(1, keepdim=True)
