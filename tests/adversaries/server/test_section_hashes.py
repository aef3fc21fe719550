"""A party looks for a second federation section with the same hashes: they are whole, of 256 bits.

Bounds: checkpoints, sessions (party).
"""

from __future__ import annotations

import hashlib
import json

from tests.server.stage import federation


def test_a_hash_of_the_agreed_section_is_a_whole_sha_256() -> None:
    hashes = federation().hashes()
    assert hashes["batch"] == hashlib.sha256(json.dumps(8).encode()).hexdigest()
    assert {len(value) for value in hashes.values()} == {64}
    assert {len(value) for value in federation().lasting_hashes().values()} == {64}
