"""Fixed code books: from an encoder's probabilities of the classes to one of k codes.

They depend on numbers that every member knows, and on nobody's rows. With k = L C codes a code is the likeliest class
and in which of L equal parts of 1 / C to 1 its probability lies. Of two classes it is in which of k parts the log-odds
of the second lie, with bounds evenly from -3.5 to 1: the second is mostly the rarer one. With fewer codes than classes
a code is a group of classes: of party m the class c is in group (c + m floor(c / k)) mod k, so that two classes that
one party puts together are apart at another. Where the server groups classes by noisy counts, its groups take their
place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TWO = 2  # classes
_ODDS = -3.5, 1.0  # lowest and highest bound between codes of two classes, in log-odds
_LEAST = 1e-12  # of a probability


@dataclass(frozen=True)
class CodeBook:
    """A party's code book.

    Args:
        classes: C, number of classes.
        codes: k, a multiple of C, or fewer than C.
        party: m, the party's place in the roster.
        given: groups of the classes in place of the fixed ones, int64 (classes,).
    """

    classes: int
    codes: int
    party: int = 0
    given: Tensor | None = None

    @property
    def groups(self) -> Tensor:
        """The group of every class where there are fewer codes than classes, int64 (classes,)."""
        if self.given is not None:
            return self.given
        c = torch.arange(self.classes)
        return (c + self.party * (c // self.codes)) % self.codes

    def of(self, probabilities: Tensor) -> Tensor:
        """The codes of rows.

        Args:
            probabilities: of the classes, (rows, classes).

        Returns:
            int64 (rows,), from 0 to k - 1.
        """
        if self.codes < self.classes:
            summed = torch.zeros(len(probabilities), self.codes, dtype=probabilities.dtype)
            return summed.index_add_(1, self.groups, probabilities).argmax(1)
        if self.classes == _TWO:
            odds = (probabilities[:, 1].clamp(min=_LEAST) / probabilities[:, 0].clamp(min=_LEAST)).log()
            bounds = torch.linspace(*_ODDS, self.codes - 1) if self.codes > _TWO else torch.zeros(1)
            return torch.bucketize(odds, bounds.to(odds.dtype))
        levels, (sure, named) = self.codes // self.classes, probabilities.max(1)
        least = 1 / self.classes
        level = ((sure - least) / (1 - least) * levels).long().clamp(0, levels - 1)
        return named * levels + level
