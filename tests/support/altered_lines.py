"""A link whose other end receives something else than its owner sends: what a lying or broken member does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from colonnade.common.conversation.conversation import Carrier, Link
from colonnade.common.conversation.parcels import Relayed


def wrap(link: Link, around: Callable[[Carrier], Carrier]) -> None:
    """Puts a carrier around that of a link."""
    link._carry = around(link._carry)


def bypass(link: Link, item: Any) -> None:
    """Sends an item without our own side's checks: a hostile peer has none."""
    link._carry(item)


def replace_each(link: Link, by: Callable[[Any], Iterable[Any]]) -> None:
    """Has the other end receive these items in the place of each, and of each relayed statement."""

    def around(carry: Carrier) -> Carrier:
        def carried(item: Any) -> None:
            if isinstance(item, Relayed):
                carry(Relayed.of([one for said in item.statements() for one in by(said)]))
                return
            for one in by(item):
                carry(one)

        return carried

    wrap(link, around)


def change_each(link: Link, change: Callable[[Any], Any]) -> None:
    """Has the other end receive what `change` makes of each item."""
    replace_each(link, lambda item: (change(item),))
