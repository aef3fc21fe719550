"""Lengths of what is sealed and proven, which limit messages before there is a key."""

from __future__ import annotations

KEY_BYTES = PROOF_BYTES = 32
KEY_PROOF_BYTES = 2 * PROOF_BYTES  # of the keys, and of the rows
OVERHEAD = 12 + 16  # bytes of a box beyond its content: a nonce and a tag
