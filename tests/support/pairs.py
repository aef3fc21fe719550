"""A second implementation of zoo_vfl and syn_zoo_vfl, in double precision and without any of its numerics."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.contracts.pairs import Difference, Pair
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.rows import generator
from colonnade.server.training.fusion.heads import joint_head
from tests.support.federation import Outcome, first, parameters

WIDTH = 8
SGD = {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3}
NAMED = {"name": "sgd", **SGD}
SETS = (
    "federation.rounds=6",
    "federation.epochs=0",
    f"every_party.optimiser={NAMED}".replace("'", ""),
    f"server.optimiser={NAMED}".replace("'", ""),
)


class Replica:
    """Every member's model, directions and optimiser as they were before the first round.

    Args:
        outcome: of the run that is to be replayed.
    """

    def __init__(self, outcome: Outcome, draw: str, mu: float) -> None:
        self.names, self.outcome, self.normal, self.mu = list(outcome.clients), outcome, draw == "normal", mu
        models = {name: first(ctx).model(WIDTH) for name, ctx in outcome.clients.items()}
        models[SERVER] = joint_head(outcome.server, WIDTH * len(self.names))
        self.models = {name: model.double() for name, model in models.items()}
        self.sgd = {name: torch.optim.SGD(model.parameters(), **SGD) for name, model in self.models.items()}
        self.draws = {name: generator("directions", 0, name) for name in self.models}
        self.first = {name: self.flat(name) for name in self.models}
        messages = [(who, to, m) for who, to, m in outcome.messages]
        self.pairs = {
            name: iter([m for who, _, m in messages if who == name and isinstance(m, Pair)]) for name in self.names
        }
        self.slopes = {
            name: iter([m for _, to, m in messages if to == name and isinstance(m, Difference)]) for name in self.names
        }

    def flat(self, name: str) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.models[name].parameters()])

    def direction(self, name: str) -> Tensor:
        u = torch.randn(len(self.flat(name)), generator=self.draws[name]).double()
        return u if self.normal else u / u.norm()

    def moved(self, name: str, u: Tensor) -> nn.Module:
        model = copy.deepcopy(self.models[name])
        nn.utils.vector_to_parameters(self.flat(name) + self.mu * u, model.parameters())
        return model

    def pair(self, name: str, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """u, h(w) and h(w + mu u); the sent messages must be the latter two."""
        x, u, sent = self.outcome.clients[name].features[rows].double(), self.direction(name), next(self.pairs[name])
        h, perturbed = self.models[name](x).detach(), self.moved(name, u)(x).detach()
        assert torch.allclose(sent.h.double(), h, atol=1e-3) and torch.allclose(
            sent.perturbed.double(), perturbed, atol=1e-3
        )
        return u, h, perturbed

    def loss(self, parts: Mapping[str, Tensor], rows: Tensor, head: nn.Module | None = None) -> float:
        logits = (head or self.models[SERVER])(torch.cat([parts[name] for name in self.names], dim=1))
        return functional.cross_entropy(logits, self.outcome.server.labels[rows]).item()

    def turn(self, names: list[str], parts: dict[str, Tensor], pairs: Mapping[str, tuple], rows: Tensor) -> float:
        """The box's steps 2 to 5 for these parties: f, with all parties' last embeddings in `parts`."""
        before = self.loss(parts, rows)
        slopes = {name: (self.loss(parts | {name: pairs[name][2]}, rows) - before) / self.mu for name in names}
        own = self.direction(SERVER)
        self.step(SERVER, own, (self.loss(parts, rows, self.moved(SERVER, own)) - before) / self.mu)
        for name in names:
            assert abs(next(self.slopes[name]).slope.item() - slopes[name]) < 1e-3 * max(1, abs(slopes[name]))
            self.step(name, pairs[name][0], slopes[name])
        return before

    def step(self, name: str, u: Tensor, slope: float) -> None:
        model, gradient = self.models[name], (1 if self.normal else len(u)) * slope * u
        for parameter, part in zip(
            model.parameters(), gradient.split([p.numel() for p in model.parameters()]), strict=True
        ):
            parameter.grad = part.view_as(parameter)
        self.sgd[name].step()

    def assert_ends_as(self, close: Callable[[Tensor, Tensor], bool]) -> None:
        """Every member's parameters are those of the run, and are not what they were."""
        found = parameters(self.outcome)
        for name in self.models:
            assert close(found[name].double(), self.flat(name)), name
            assert not close(found[name].double(), self.first[name]), name
