"""A hash of what the server has told all parties alike in this run; the masks of a sum are bound to it.

A server may go back to a checkpoint and then send one party a different answer. The difference between the two sums of
a round would reveal how that answer changed this party's values. Statements would find it later (docs/transcript.md);
here the masks of a party that was told otherwise no longer cancel, from the next sum on and in later sessions and
predictions, because the hash is in the checkpoint.

Used only where every party takes part in every round; elsewhere a slow party misses some of what the others are told.
"""

from __future__ import annotations

from hashlib import sha256

from colonnade.client.training.context import ClientContext
from colonnade.client.transcript.entries import entry_of
from colonnade.client.transcript.transcript import always_in_step
from colonnade.common.config.compression import form_of
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Link
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.messaging.message import Message

_NAME = "told"  # in the state: a list, empty until the party has received a message that is the same for all


class Told:
    """The hash of what the party side has received on its link, in order.

    Args:
        trains: False for predictions, whose requests are bound separately.
    """

    def __init__(self, ctx: ClientContext, server: Link, *, trains: bool = True) -> None:
        federation = ctx.federation
        self._kept = ctx.state.keep(_NAME, list[str])
        self._exact = form_of(federation.compress.down) == AS_IS
        if not always_in_step(federation, CONTRACTS[federation.protocol.name]):
            self._kept.clear()
        elif trains:
            server.on_taken = self._take

    def bind(self, about: bytes) -> bytes:
        """Hash of a sum's subject and of everything that we were told before it."""
        return sha256(about + self._kept[0].encode()).digest() if self._kept else about

    def _take(self, message: Message) -> None:
        if (entry := entry_of(message, message.round, exact=self._exact)) is not None:
            before = self._kept[0] if self._kept else ""
            self._kept[:] = [sha256(repr((before, entry.name, entry.round)).encode() + entry.digest).hexdigest()]
