"""A whole federation in one event loop on the virtual clock, on the bundled digits."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import Delay
from colonnade.common.parsing.file import parse
from colonnade.common.run.state import State
from colonnade.simulation.federation import Outcome, Simulation
from colonnade.testing.trial import digits

# Required settings of a protocol's parties.
NEEDS: Mapping[str, Mapping[str, Any]] = {"fedvs": {"model": {"name": "polynomial", "layers": 2}}}
# Required settings of a federation.
AGREED: Mapping[str, Mapping[str, Any]] = {
    "vfl_afe": {
        "privacy": {"mechanism": "adaptive", "clip": 1, "noise_multiplier": 0.05, "delta": 1e-4, "seeded": True},
    },
}


# Settings of the papers, which the independent computations in tests have.
SGD, MOMENTUM = {"name": "sgd", "momentum": 0, "lr": 0.1}, {"name": "sgd", "momentum": 0.9, "lr": 0.1}
PAPER: Mapping[str, Mapping[str, Any]] = {
    "vimadmm": {"rho": 1.0, "tau": 20},
    "vimadmm_j": {"rho": 1.0, "tau": 20, "damping": "none"},
    "linear_admm": {"rho": 0.03, "damping": "none"},
}


def tree(protocol: Mapping[str, Any], **federation: Any) -> dict[str, Any]:
    """The digits among four parties, as a file has them, with plain SGD."""
    name = protocol["name"]
    made = digits({**PAPER.get(name, {}), **protocol}, **{"stop": "none", **AGREED.get(name, {}), **federation})
    used = CONTRACTS[name].config.optimisers  # members are told of sections without a use
    if "server" in used:
        made["server"].setdefault("optimiser", SGD)
        made["server"].setdefault("head", "linear")
    if "active" in made["server"]:
        made["server"]["active"].setdefault("optimiser", MOMENTUM)
    if "party" in used:
        made["every_party"].setdefault("optimiser", MOMENTUM)
    if "head" in used:
        made["every_party"].setdefault("head_optimiser", {**SGD, "lr": 0.03})
    if name in NEEDS:
        made["every_party"]["data"]["scale"] = "unit"
        made["every_party"] |= NEEDS[name]
    return copy.deepcopy(made)


def config(protocol: Mapping[str, Any], *sets: str) -> Config:
    """The same, with overrides as on the command line."""
    return parse(tree(protocol), sets)


def federate(cfg: Config, delay: Delay = lambda _from, _to, _item: 0.0, **more: Any) -> Outcome:
    """Runs both sides of the config's protocol to their end.

    Args:
        delay: seconds that items take, for stragglers.
        more: as `Simulation` takes it.
    """
    return Simulation(cfg, delay=delay, record=True, **more).run()


def late(
    party: str,
    kind: Any = object,
    *,
    seconds: float = 1e6,
    rounds: Container[int] | None = None,
    others: float = 0.0,
) -> Delay:
    """Delays the messages of a kind that a party sends in some rounds, by default for good and in all of them."""

    def delay(sender: str, _to: str, item: object) -> float:
        chosen = sender == party and isinstance(item, kind) and (rounds is None or getattr(item, "round", 0) in rounds)
        return seconds if chosen else others

    return delay


def uneven(kind: type) -> Delay:
    """party1 answers fastest, party4 slowest."""
    return lambda sender, _to, item: (
        0.1 * int(sender[-1]) + 0.01 if sender != SERVER and isinstance(item, kind) else 0.001
    )


def first(ctx: ClientContext) -> ClientContext:
    """The party as it was before the first round: its models are made anew."""
    return replace(ctx, state=State())


def parameters(outcome: Outcome) -> dict[str, Tensor]:
    """Learned parameters of every party and the server, flat: models, heads, or the duals if there is neither."""
    kept = {name: _learned(ctx.state, "model", "weights") for name, ctx in outcome.clients.items()}
    kept[SERVER] = _learned(outcome.server.state, "heads", "head", "duals")
    return {name: values for name, values in kept.items() if values is not None}


def _learned(state: State, *names: str) -> Tensor | None:
    found = next((state[name] for name in names if name in state), None)
    if isinstance(found, nn.Module):
        return torch.cat([p.detach().flatten() for p in found.parameters()])
    return None if found is None else found.detach().flatten()
