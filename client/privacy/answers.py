"""Durable count of a party's answers to vectors and splits that the server chooses, over all sessions and starts.

A malicious server can read columns from such answers, and encryption hides from a party what it is asked. A party
therefore answers at most twice what the configured run needs, or its policy's limit. Answers of a repeated round count
again: its vectors are encrypted anew and may differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from colonnade.common.config.policy import PolicyConfig
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.accounting.budget import Reserved
from colonnade.common.run.json_text import read_lines, whole

Kind = Literal["vectors", "splits"]
KINDS: tuple[Kind, ...] = ("vectors", "splits")
REPEATS = 2  # answers, as a multiple of what a run asks for: room for rounds that interruptions repeat

_BLOCKS = 32  # reservations of a run: a crash forfeits at most one


class Answers(Reserved):
    """Counts answers of one kind, and refuses those beyond the policy's `max_vectors` or `max_splits`.

    Args:
        path: the party's ledger; None counts in memory.
        expected: answers that a run asks for at most.

    Raises ConfigError if the policy allows fewer vectors than the run asks for, CheckpointError if the ledger was
    altered.
    """

    held_back = "nothing is answered"

    def __init__(self, path: Path | None, party: str, policy: PolicyConfig, kind: Kind, expected: int) -> None:
        self._party, self._kind, self._rule = party, kind, f"max_{kind}"
        own: int | None = getattr(policy, self._rule)
        self.most = REPEATS * expected if own is None else own
        if kind == "vectors" and self.most < expected:  # of splits a run asks for fewer than it may
            policy.object(party, self._rule, self.most, f"{expected} vectors in a run")
        already = 0 if path is None else reserved(path, kind)
        super().__init__(path, kind, None, already, max(1, expected // _BLOCKS))

    @property
    def answered(self) -> int:
        """Answers of all starts, sent or forfeited by a crash."""
        return int(self._counts[self._kind])

    def take(self, count: int) -> None:
        """Counts answers before they are sent; durable when this returns.

        Raises ConfigError, and counts nothing, if the limit would be passed; EnvironmentFault as `Reserved`.
        """
        if self.answered + count > self.most:
            PolicyConfig.object(
                self._party, self._rule, self.most, f"asked for {self.answered + count} {self._kind} in this run",
                hint=f"rounds that interruptions repeat count again: if these explain it, raise policy.{self._rule} "
                "and resume; otherwise the server asks for what no tree needs",
            )  # fmt: skip
        self._take(self.most - self.answered, count)

    def _entry(self, counted: dict[str, int]) -> dict[str, Any]:
        return {self._kind: counted}


def reserved(path: Path, kind: Kind) -> int:
    """Answers reserved by a ledger's lines, less those returned."""
    total = 0
    for entry in read_lines(path):
        if kind in entry:
            try:
                total += whole(entry[kind].get("reserved", 0)) - whole(entry[kind].get("returned", 0))
            except (ValueError, AttributeError):
                said = f"{path}: a line that counts {kind} was altered"
                raise CheckpointError(said, hint="restore the ledger from a copy, or begin a new run") from None
    return total
