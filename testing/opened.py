"""The joint model of a simulated run, put together from its parts as `explain` and `predict` do."""

from __future__ import annotations

import torch

from colonnade.client.protocols import LOCAL
from colonnade.server.protocols import ACTIVE, JOINT
from colonnade.simulation.outcome import Outcome


def accuracy_of_parts(run: Outcome) -> float:
    """Share of the test rows that `joint` classifies correctly, from the outputs of every party's `local`."""
    protocol = run.server.federation.protocol
    rows = run.server.schedule.partition.test
    parts = []
    for client in run.clients.values():
        local = LOCAL[protocol.name](client, protocol)
        local.eval()
        with torch.no_grad():
            parts.append(local(client.features[rows]))
    joint = (
        ACTIVE[protocol.name](run.server, protocol)(rows)
        if protocol.name in ACTIVE
        else JOINT[protocol.name](run.server, protocol)
    )
    with torch.no_grad():
        named = joint.logits(parts).argmax(1)
    return (named.cpu() == run.server.labels[rows].cpu()).float().mean().item()
