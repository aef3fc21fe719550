"""Schedule of the lists: members form a ring, and every list passes round it once.

Member indices are 0 (the server) to n - 1. In every stage each member sends the list that it holds to the next member,
so that in stage s member m holds the list of member m - s. Lists move on in stages 0 .. n - 2; in stage n - 1 every
list has visited all members, and goes to the server, which compares them.

The list of member o reaches member m through o, o + 1, .. m - 1, and all parties among these have raised it. The server
raises its own list alone, and removes its secret at the end. So no two lists that a party sees were raised by the same
members: it can compare none of them, and each contains a secret that is not its own.

Positions return in the opposite direction: in stage s of the return, member m undoes its shuffle of the list of member
m + 1 + s; its own list comes last.
"""

from __future__ import annotations

from dataclasses import dataclass

SERVER_SEAT = 0


@dataclass(frozen=True)
class PsiRing:
    """Sizes (number of keys of every member's list) and block (number of keys in a message)."""

    sizes: tuple[int, ...]
    block: int

    @property
    def members(self) -> int:
        return len(self.sizes)

    def raises(self, index: int, owner: int) -> bool:
        """True if a member raises a list: a party all, the server its own, since it compares the others anyway."""
        return index != SERVER_SEAT or owner == SERVER_SEAT

    def owner(self, index: int, stage: int) -> int:
        return (index - stage) % self.members

    def owner_back(self, index: int, stage: int) -> int:
        """Owner of the list whose shuffle a member undoes in a stage of the return."""
        return (index + 1 + stage) % self.members

    def blocks(self) -> int:
        """Number of blocks of the longest list; shorter lists end in empty blocks."""
        return -(-max(self.sizes) // self.block)

    def span(self, owner: int, block: int) -> slice:
        """The places of a block in a list; empty after the list's end."""
        size = self.sizes[owner]
        return slice(min(block * self.block, size), min((block + 1) * self.block, size))

    def length(self, owner: int, block: int) -> int:
        span = self.span(owner, block)
        return int(span.stop - span.start)

    def spans_of(self, rows: int) -> list[slice]:
        return [slice(at, min(at + self.block, rows)) for at in range(0, rows, self.block)]
