"""Progress of a party, over all sessions and connections of one start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from colonnade.client.privacy.mechanisms import Privacy
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.stream import Traffic
from colonnade.common.run.phases import CHECKPOINT, COMPUTING, WAITING, Phases


@dataclass
class TrainingProgress:
    """Progress of a party for its endpoints. Thread-safe."""

    phases: Phases = field(default_factory=lambda: Phases(COMPUTING, WAITING, CHECKPOINT))
    traffic: Traffic = field(default_factory=Traffic)
    done: int = 0
    round: int = 0
    saved: int = 0
    privacy: Privacy | None = None
    on_round: Callable[[int], None] = lambda _round: None
    _link: Link | None = None

    def follow(self, link: Link, round: int) -> None:
        """Follows a session's link from a restored round on; its messages count from now on."""
        link.traffic.received = self.traffic.received
        link.on_round = self._enter
        self._link, self.round, self.saved = link, round, round

    def mailbox(self) -> Mailbox:
        """Mailbox for a new link: its waits are counted in `phases`."""
        return Mailbox(phases=self.phases)

    @property
    def planned(self) -> int | None:
        return None if self._link is None else self._link.last

    @property
    def unread(self) -> int:
        return 0 if self._link is None else self._link.mailbox.unread(SERVER)

    def _enter(self, round: int) -> None:
        self.done, self.round = self.done + 1, round
        self.on_round(round)
