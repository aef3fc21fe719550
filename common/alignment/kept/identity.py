"""The identity of an alignment, which every member computes, and the statement that a member holds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from colonnade.common.config.federation import FederationConfig
from colonnade.common.crypto.sealing import Session

_VERSION = 1


def roster_digest(federation: FederationConfig, *, pinned: bool) -> bytes:
    """32 bytes that change with the federation's id, a member, a fingerprint, and how keys are compared and checked.

    Args:
        federation: the agreed section, with the whole roster.
        pinned: False where fingerprints belong to keys made for one start, so that they identify no member.
    """
    checks = [] if federation.align_checks == "none" else [federation.align_checks]  # as in versions without checks
    pins = [[name, pin if pinned else ""] for name, pin in federation.parties.items()]
    server = federation.server if pinned else ""
    content = [
        _VERSION,
        federation.id,
        federation.align,
        federation.keys.model_dump(mode="json"),
        server,
        pins,
        *checks,
    ]
    return hashlib.sha256(json.dumps(content).encode()).digest()


def identity_of(roster: bytes, nonces: Sequence[bytes], common: int, commitments: Mapping[str, str]) -> str:
    """The identity of one alignment, 64 hexadecimal digits.

    It contains a nonce of every member, so no member can choose it or reproduce an earlier one. It depends on no key,
    so keys cannot be tested against it.

    Args:
        nonces: the server's first, then the parties' in the roster's order.
        commitments: digest of every member's list, by name; empty if lists were not checked. Members that were shown
            different ones compute different identities, and cannot reuse the alignment.
    """
    content = [
        _VERSION,
        roster.hex(),
        [nonce.hex() for nonce in nonces],
        common,
        *([dict(commitments)] if commitments else []),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def statement(
    session: Session, federation: FederationConfig, party: str, identity: str, nonces: Sequence[bytes]
) -> bytes:
    """The signed content with which a party states, in a session of these members, that it holds an alignment.

    Every verifier has drawn one of the nonces for this agreement, so a statement made in another agreement (even with
    the same session number) or for other members is not valid.

    Args:
        federation: the agreed section, with the present parties and their fingerprints.
        nonces: the server's first, then the parties' in the roster's order.
    """
    members = {"server": federation.server, **federation.parties}
    seats = [[name, pin, nonce.hex()] for (name, pin), nonce in zip(members.items(), nonces, strict=True)]
    return session.transcript("kept alignment", party, identity, json.dumps(seats))
