"""A member's secret exponent in an alignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from colonnade.common.alignment.kept.raised import RaisedElements
from colonnade.common.crypto.group import ELEMENT, Secret, check_elements
from colonnade.common.crypto.raising import Raising

_OWN, _FORTH, _BACK = b"k", b"f", b"b"  # purposes: our own keys, elements, elements that return


class Exponent:
    """Raises keys and elements to a member's secret.

    Args:
        scalar: the secret, 32 bytes.
        known: results of earlier alignments with this secret; None raises everything.
    """

    width = ELEMENT
    """Bytes of an element."""
    proves = False

    def __init__(self, scalar: bytes, raising: Raising, known: RaisedElements | None = None) -> None:
        self._secret, self._raising, self._known = Secret(scalar), raising, known
        self._inverse = self._secret.inverse()

    def keys(self, keys: Sequence[bytes], tag: bytes) -> bytes:
        """Hashes our own keys and raises them; concatenated."""
        if self._known is None:
            return self._raising.keys(self._secret, keys, tag)
        return self._known.get(_OWN + tag, keys, lambda new: self._raising.keys(self._secret, new, tag))

    def elements(self, elements: bytes) -> bytes:
        """Raises concatenated elements. Raises InputError: one is not an element, or has small order."""
        return self._raised(_FORTH, self._secret, elements)

    def take_back(self, elements: bytes) -> bytes:
        """Removes the secret from concatenated elements."""
        return self._raised(_BACK, self._inverse, elements)

    def check(self, elements: bytes) -> None:
        check_elements(elements)

    def _raised(self, purpose: bytes, secret: Secret, elements: bytes) -> bytes:
        if self._known is None or len(elements) % ELEMENT:
            return self._raising.elements(secret, elements)
        apart = [elements[at : at + ELEMENT] for at in range(0, len(elements), ELEMENT)]
        return self._known.get(purpose, apart, lambda new: self._raising.elements(secret, b"".join(new)))


MakeExponent = Callable[[bytes], Exponent]
"""Makes an exponent of a fresh secret of 32 bytes, or ignores the secret and returns a kept one."""
