"""A whole federation in one event loop on the virtual clock, on the bundled digits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from client.context import ClientContext
from client.door import Door
from client.protocols import PARTICIPATE
from common import inprocess
from common.config import Config, parse
from common.conversation import SERVER, Item
from common.data.scale import Columns, Scaler
from common.data.sources import load_features, load_labels
from common.data.split import Seat
from common.inprocess import Delay
from common.mailbox import Mailbox
from common.message import Message
from common.privacy.ledger import Ledger
from common.privacy.release import release_clear
from common.protocols import CONTRACTS
from common.schedule import Schedule
from common.telemetry import Event, Telemetry
from server.context import ServerContext
from server.protocols import SERVE

DIGITS: Mapping[str, Any] = {
    "federation": {
        "id": "test",
        "parties": 4,
        "classes": 10,
        "epochs": 2,
        "batch": 256,
        "seed": 0,
    },
    "server": {"labels": {"source": "sklearn", "name": "digits"}},
    "every_party": {"data": {"source": "sklearn", "name": "digits", "split": "columns"}},
}


@dataclass
class Outcome:
    """What is left of a run: both ends' contexts, every event, and every message in order of sending."""

    server: ServerContext
    clients: dict[str, ClientContext]
    events: list[Event]
    messages: list[tuple[str, str, Message]] = field(default_factory=list)
    mailbox: Mailbox = field(default_factory=Mailbox)
    seconds: float = 0.0

    def parameters(self) -> dict[str, Tensor]:
        """Every party's model and the server's head or heads, flat."""
        flat = {
            name: torch.cat([p.flatten() for p in ctx.state["model"].parameters()])
            for name, ctx in self.clients.items()
        }
        kept = self.server.state["heads"] if "heads" in self.server.state else self.server.state["head"].weight
        return {**flat, SERVER: kept.detach().flatten()}

    def of_kind(self, event: str) -> list[Event]:
        """The events of a kind."""
        return [e for e in self.events if e["kind"] == event]


def config(protocol: Mapping[str, Any], *sets: str) -> Config:
    """The digits among four parties, with overrides as on the command line."""
    tree = {key: dict(value) for key, value in DIGITS.items()}
    tree["federation"]["protocol"] = dict(protocol)
    return parse(tree, sets)


def federate(cfg: Config, delay: Delay | None = None, clients: list[str] | None = None) -> Outcome:
    """Runs both halves of the config's protocol to their end.

    Args:
        delay: seconds that items take, for stragglers.
        clients: the parties whose halves run; all of the roster by default.
    """
    federation = cfg.federation
    assert cfg.server is not None
    contract = CONTRACTS[federation.protocol.name]
    labels = load_labels(cfg.server.labels, Path())
    events: list[Event] = []
    schedule = Schedule(federation, len(labels.values), labels.official_test)
    server = ServerContext(federation, cfg.server, labels.values, schedule, Telemetry(None, events.append))
    outcome = Outcome(server, {}, events)

    async def main() -> None:
        cohort, links = inprocess.connect(
            list(federation.names), contract.kinds, contract.limits(federation),
            delay or (lambda _from, _to, _item: 0.0), outcome.mailbox,
        )  # fmt: skip
        halves = []
        for name in clients or federation.names:
            link = links[name]
            door = Door(_recorded(outcome, name, SERVER, link._carry), SERVER, release_clear, Ledger(None))
            link._carry = door
            cohort[name]._carry = _recorded(outcome, SERVER, name, cohort[name]._carry)
            outcome.clients[name] = _context(cfg, name, door)
            halves.append(asyncio.create_task(PARTICIPATE[contract.name](outcome.clients[name], link)))
        await SERVE[contract.name](server, cohort)
        outcome.seconds = asyncio.get_running_loop().time()
        await asyncio.gather(*halves)

    inprocess.run_virtual(main())
    return outcome


def _context(cfg: Config, name: str, door: Door) -> ClientContext:
    federation, party = cfg.federation, cfg.parties[name]
    seat = Seat(federation.names.index(name), len(federation.names))
    features = load_features(party.data, seat, Path())
    schedule = Schedule(federation, len(features.values), features.official_test)
    scaler = Scaler.fit(party.data.scale, features.values, schedule.partition.train)
    return ClientContext(name, federation, party, Columns(features.values, scaler), schedule, door.release)


def _recorded(outcome: Outcome, sender: str, to: str, carry: Any) -> Any:
    def carry_and_record(item: Item) -> None:
        if isinstance(item, Message):
            outcome.messages.append((sender, to, inprocess.snapshot(item)))
        carry(item)

    return carry_and_record
