"""Types of a message's tensor fields. At run time they are only names, so that contracts are read without torch.

    Tensor          an ordinary tensor: in a server's message, or public
    Released        a party's tensor that went through its privacy stage
    MaskedTensor    a party's tensor that reveals nothing by itself

The type checker sees torch's and outgoing.py's classes, as does a declaration that imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from colonnade.common.messaging.outgoing import MaskedTensor, Released
else:

    class Tensor:
        """A tensor."""

    class Released(Tensor):
        """A release."""

    class MaskedTensor(Tensor):
        """A masked tensor."""


__all__ = ["MaskedTensor", "Released", "Tensor"]
