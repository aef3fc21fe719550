"""Checks the server's instructions in a session: opened rounds, checkpoints, the close.

An honest server opens rounds in order, asks for a checkpoint between two rounds, and closes after the last one. Their
place in a session is in common/conversation/session.py; here is what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Close, Item, Open, Relayed, Save
from colonnade.common.errors import ContractError, FloodError, PartyLost

# Relayed statements of one party per session, and per round opened here: a slow party is not told of all rounds.
_STATEMENTS, _STATEMENTS_A_ROUND = 1024, 4


class Record(Protocol):
    @property
    def committed(self) -> bool:
        """True if every member has saved a checkpoint of the run."""


class Instructions:
    """The instructions of one session, in the order of their arrival.

    Args:
        begun: the round after which the session continues.
        last: the round before which the run cannot end.
        held: rounds of the checkpoints that the party holds.
        saves: False for predictions, which leave checkpoints as they are.
    """

    def __init__(
        self,
        party: str,
        begun: int,
        last: int,
        held: Collection[int],
        record: Record,
        *,
        saves: bool = True,
        parties: int,
    ) -> None:
        self._party, self._newest, self._last, self._record = party, begun, last, record
        self._saves, self._parties = saves, parties
        self._opens, self._statements = 0, 0
        self._held = {round for round in held if round <= begun}
        self._opened = False  # True until a checkpoint of the newest open round is requested

    def checked(self, deliver: Callable[[Item], None], fail: Callable[[Exception], None]) -> Callable[[Item], None]:
        """Wraps the delivery of items. `fail` ends the party side, with the ContractError of an instruction that no
        honest server gives.
        """

        def receive(item: Item) -> None:
            try:
                self.check(item)
            except ContractError as wrong:
                fail(wrong)
            else:
                deliver(item)

        return receive

    def check(self, item: Item) -> None:
        """Checks the next item. Raises ContractError."""
        match item:
            case Open(round=round):
                if round <= self._newest:
                    raise ContractError(SERVER, "Open", "round", f"more than {self._newest}", str(round))
                self._newest, self._opened = round, True
                self._opens += 1
            case Relayed(parties=authors):
                self._statements += max(1, len(authors))
                most = self._parties * (_STATEMENTS + _STATEMENTS_A_ROUND * self._opens)
                if self._statements > most:
                    raise FloodError(SERVER, "Relayed", "", f"at most {most} so far", f"{self._statements}")
            case Save():
                self._check_save(item)
            case Close():
                if self._newest < self._last:
                    expected = f"after round {self._last}, as agreed"
                    raise ContractError(SERVER, "Close", "", expected, f"it after round {self._newest}")

    def _check_save(self, save: Save) -> None:
        """Checks a request for a checkpoint, because the party then removes all checkpoints that it does not name."""
        if not self._saves:
            raise ContractError(SERVER, "Save", "", "none in a prediction", f"one of round {save.round}")
        if save.round != self._newest or not self._opened:
            expected = f"{self._newest}, the newest open round" if self._opened else "an open round, once"
            raise ContractError(SERVER, "Save", "round", expected, str(save.round))
        if not save.keep and self._record.committed:
            expected = "that of a checkpoint, since one was committed in this run"
            raise ContractError(SERVER, "Save", "keep", expected, "0")
        for name, round in (("keep", save.keep), ("best", save.best)):
            if round and self._held and round not in self._held:  # a party with a new folder holds none
                ours = ", ".join(map(str, sorted(self._held))) or "none"
                expected = f"that of a checkpoint which {self._party} holds ({ours})"
                raise ContractError(SERVER, "Save", name, expected, str(round))
        if save.model not in (0, save.round, save.best):
            expected = f"this round's or the best's ({save.round}, {save.best})"
            raise ContractError(SERVER, "Save", "model", expected, str(save.model))
        self._opened = False
        self._held = {save.round, save.keep, save.best} - {0}


def ended_early() -> PartyLost:
    return PartyLost(SERVER, "it ended the run early", hint="its log says why")
