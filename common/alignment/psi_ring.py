"""Who has whose list when: members stand in a ring, and every list goes round it once.

The members' seats are 0 (the server) to n - 1. Whatever a member has is passed on to the next seat in every stage, so
that in stage s seat m holds the list of seat m - s. In the stages 0 .. n - 2 lists go on; in stage n - 1 every list has
been everywhere, and each goes to the server, which compares them.

The list of seat o comes to seat m from the seats o, o + 1, .. m - 1, and of those all parties have raised it. The
server raises its own list alone, and takes that back in the end. So no two lists that a party sees were raised by the
same members, it can compare none of them, and in each there is a secret that is not its own.

Positions come back the other way: in stage s of the return, seat m undoes its shuffle of the list of seat m + 1 + s,
the last of them its own.
"""

from __future__ import annotations

from dataclasses import dataclass

SERVER_SEAT = 0


@dataclass(frozen=True)
class PsiRing:
    """Sizes and blocks.

    Args:
        sizes: keys of every seat's list.
        block: keys that travel at a time.
    """

    sizes: tuple[int, ...]
    block: int

    @property
    def members(self) -> int:
        """n, how many there are."""
        return len(self.sizes)

    def raises(self, index: int, owner: int) -> bool:
        """Whether a seat raises a list: a party all, the server its own, since it compares the others anyway."""
        return index != SERVER_SEAT or owner == SERVER_SEAT

    def owner(self, index: int, stage: int) -> int:
        """Whose list a seat passes on in a stage."""
        return (index - stage) % self.members

    def owner_back(self, index: int, stage: int) -> int:
        """In whose list a seat finds the positions from before its shuffle, in a stage of the return."""
        return (index + 1 + stage) % self.members

    def blocks(self) -> int:
        """Of the longest list: all lists take as many, and are over earlier or later."""
        return -(-max(self.sizes) // self.block)

    def span(self, owner: int, block: int) -> slice:
        """The places of a block in a list; empty where the list is over."""
        size = self.sizes[owner]
        return slice(min(block * self.block, size), min((block + 1) * self.block, size))

    def length(self, owner: int, block: int) -> int:
        """How many keys a block of a list has."""
        span = self.span(owner, block)
        return int(span.stop - span.start)

    def spans_of(self, rows: int) -> list[slice]:
        """The blocks of so many positions."""
        return [slice(at, min(at + self.block, rows)) for at in range(0, rows, self.block)]
