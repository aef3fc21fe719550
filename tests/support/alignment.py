"""An alignment in one event loop on the virtual clock."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from colonnade.client.alignment.matching import Matching
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import ALIGNMENT, alignment_limits
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import Delay
from colonnade.common.conversation.parcels import Item
from colonnade.common.crypto.group import Secret
from colonnade.common.crypto.sealing import Session
from colonnade.common.messaging.message import Message, snapshot
from colonnade.common.parsing.file import parse
from colonnade.server.alignment.relay import Aligning
from tests.support.altered_lines import change_each
from tests.support.federation import tree

Change = Callable[[str, str, Item], Item]
KINDS = {kind.__name__: kind for kind in ALIGNMENT}


def federation(parties: int, align: str = "psi", **more: Any) -> FederationConfig:
    made = tree({"name": "split"}, **{"parties": parties, "align": align, **more})
    return parse(made).federation


@dataclass
class Found:
    """Results of every member (its rows, or its error), its records, and every message: (from, to, message)."""

    rows: dict[str, Tensor | Exception] = field(default_factory=dict)
    kept: dict[str, tuple[str, Tensor]] = field(default_factory=dict)
    messages: list[tuple[str, str, Message]] = field(default_factory=list)
    seconds: float = 0.0

    def common(self, ids: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The keys of the rows that each member found; raises a member's error."""
        keys = {}
        for member, rows in self.rows.items():
            if isinstance(rows, Exception):
                raise rows
            keys[member] = [ids[member][row] for row in rows.tolist()]
        return keys


def align(
    agreed: FederationConfig,
    ids: Mapping[str, Sequence[str]],
    *,
    policies: Mapping[str, PolicyConfig] | None = None,
    block: int = 5,
    delay: Delay | None = None,
    session: int = 7,
    change: Callable[[str, Item], Item] = lambda _sender, item: item,
) -> Found:
    """Aligns the ids of the server and of all parties. `change` may alter what a member sends."""
    return inprocess.run_virtual(_align(agreed, ids, policies or {}, block, delay, session, change))


async def _align(
    agreed: FederationConfig,
    ids: Mapping[str, Sequence[str]],
    policies: Mapping[str, PolicyConfig],
    block: int,
    delay: Delay | None,
    session: int,
    change: Callable[[str, Item], Item],
) -> Found:
    found, names, about = Found(), list(agreed.names), Session("test", "a-run", session)
    cohort, links = watched(names, lambda sender, _to, item: change(sender, item), found.messages, delay)
    config: KeysConfig = agreed.keys

    def keep(member: str) -> Callable[[str, Tensor], None]:
        return lambda number, rows: found.kept.__setitem__(member, (number, rows))

    own = RowKeys.of(ids[SERVER], config, SERVER)
    halves = {SERVER: Aligning(agreed, own, about, cohort, keep(SERVER), block=block, checks=agreed.align_checks)()}
    for name in names:
        policy, keys = policies.get(name, PolicyConfig()), RowKeys.of(ids[name], config, name)
        half = Matching(name, agreed, policy, keys, about, links[name], keep=keep(name), block=block)
        half.checks = agreed.align_checks
        halves[name] = half()
    found.rows = await together(halves, cohort, links)
    found.seconds = asyncio.get_running_loop().time()
    return found


def watched(
    names: Sequence[str], change: Change, messages: list[tuple[str, str, Message]], delay: Delay | None = None
) -> tuple[Any, Any]:
    """The links of both ends, by name. `change` may alter what passes; what then passes is appended to `messages`."""
    limits = alignment_limits(len(names) + 1)
    cohort, links = inprocess.connect(names, KINDS, limits, delay or (lambda _from, _to, _item: 0.0))

    def passing(sender: str, to: str, item: Item) -> Item:
        item = change(sender, to, item)
        if isinstance(item, Message):
            messages.append((sender, to, snapshot(item)))
        return item

    for name in names:
        change_each(cohort[name], partial(passing, SERVER, name))
        change_each(links[name], partial(passing, name, SERVER))
    return cohort, links


async def together(halves: Mapping[str, Awaitable[Tensor]], cohort: Any, links: Any) -> dict[str, Tensor | Exception]:
    """What each member finds, or its error, which the other ends are sent, as a real member's failure is."""
    tasks = {member: asyncio.ensure_future(half) for member, half in halves.items()}

    def tell(member: str, task: asyncio.Future[Tensor]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            for name in tasks:
                if name != SERVER and member in (SERVER, name):
                    (links[name] if member == SERVER else cohort[name]).lose(error)

    for member, task in tasks.items():
        task.add_done_callback(partial(tell, member))
    results = await asyncio.gather(*tasks.values(), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
    return dict(zip(tasks, results, strict=True))  # type: ignore[arg-type]


def raise_cheaply(secret: Secret, elements: bytes) -> bytes:
    """Commutes, and is its own inverse."""
    points = np.frombuffer(elements, dtype=np.uint8).reshape(-1, 32)
    return (points ^ np.frombuffer(secret.scalar, dtype=np.uint8)).tobytes()


def hash_cheaply(keys: Sequence[bytes], tag: bytes) -> bytes:
    return b"".join(hashlib.sha256(tag + key).digest() for key in keys)
