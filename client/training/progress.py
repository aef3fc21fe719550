"""How far a party is, over all sessions and connections of one start."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.client.privacy.stage import Privacy
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.traffic import Traffic
from colonnade.common.runtime.phases import CHECKPOINT, COMPUTING, WAITING, Phases


@dataclass
class TrainingProgress:
    """What those who watch a party may see of it. Any thread may read it.

    Attributes:
        phases: where the half's time goes.
        traffic: what has left through the door, in the bytes that the ledger names, and what has come.
        done: how many rounds the half has gone through.
        round: the last of them.
        saved: the round of the newest checkpoint.
        privacy: what protects the party, once that is known.
    """

    phases: Phases = field(default_factory=lambda: Phases(COMPUTING, WAITING, CHECKPOINT))
    traffic: Traffic = field(default_factory=Traffic)
    done: int = 0
    round: int = 0
    saved: int = 0
    privacy: Privacy | None = None
    _link: Link | None = None

    def follow(self, link: Link, round: int) -> None:
        """A session begins over a link, after a round that was restored; its messages count here from now on."""
        link.traffic.received = self.traffic.received
        link.on_round = self._enter
        self._link, self.round, self.saved = link, round, round

    def mailbox(self) -> Mailbox:
        """For a link that is to be followed: what waits at it is seen in `phases`."""
        return Mailbox(phases=self.phases)

    @property
    def planned(self) -> int | None:
        """Rounds that the run has, once they are known."""
        return None if self._link is None else self._link.last

    @property
    def unread(self) -> int:
        """How many messages of the server wait for the half."""
        return 0 if self._link is None else self._link.mailbox.unread(SERVER)

    def _enter(self, round: int) -> None:
        self.done, self.round = self.done + 1, round
