"""A member's pledge: its signed digest of the list that it sends in a stage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.common.alignment.psi_ring import SERVER_SEAT
from colonnade.common.config.federation import FederationConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.crypto.signatures import Signer, Verifier
from colonnade.common.errors import ContractError


@dataclass(frozen=True)
class PledgeTerms:
    """Context of all pledges of an alignment.

    Args:
        federation: the agreed section, with the present parties and their fingerprints.
        nonces: one of every member, drawn for this alignment, so that pledges of another one are not valid.
    """

    session: Session
    federation: FederationConfig
    nonces: Sequence[bytes] = ()

    def content(self, member: str, stage: int, digest: bytes, more: bytes = b"") -> bytes:
        """The signed content; stage 0 is the member's own list, `more` is what else the pledge is bound to."""
        seats = [[name, pin] for name, pin in {SERVER: self.federation.server, **self.federation.parties}.items()]
        words = json.dumps([seats, [nonce.hex() for nonce in self.nonces], digest.hex(), more.hex()])
        return self.session.transcript("pledged list", member, stage, words)


class PledgeBook:
    """The pledges of an alignment, as one party checks and keeps them.

    Args:
        identity: signs the party's pledges; None on loopback without TLS: nothing is signed or verified.

    Attributes:
        seat: the party's place among the members.
        digests: of all members' lists, by stage, the server first.
        keys: what the parties pledged with their own lists; empty for the server.
    """

    def __init__(self, name: str, terms: PledgeTerms, identity: Identity | None) -> None:
        self.signer, self.digests = Signer(identity), list[tuple[bytes, ...]]()
        self.name, self._terms = name, terms
        self.seat = 1 + terms.federation.names.index(name)
        self.keys = list[bytes]()
        self._verifiers: dict[str, Verifier] = {}

    def sign(self, stage: int, digest: bytes, more: bytes = b"") -> bytes:
        """The party's signature; empty without an identity."""
        return self.signer.sign(self._terms.content(self.name, stage, digest, more))

    def enter(
        self,
        stage: int,
        digests: Sequence[bytes],
        certificates: Sequence[bytes],
        signatures: Sequence[bytes],
        more: Sequence[bytes] = (),
    ) -> None:
        """Checks the pledges of the next stage, and keeps them.

        Args:
            stage: the stage that is entered; after the last one, digests are of the places of planted keys.
            digests: of all members, the server first.
            certificates: likewise, PEM, in the first stage.
            signatures: likewise; the server's is empty, since it speaks for itself.
            more: what else each pledge is bound to.

        Raises:
            ForgedError: a party has not signed its pledge for this alignment.
            ContractError: the server relays another pledge than ours, or has changed a list that it only passes on.
        """
        names = (SERVER, *self._terms.federation.names)
        for seat, name in enumerate(names):
            if name in (SERVER, self.name) or not self.signer.certificate:
                continue
            if stage == 0:
                pin = self._terms.federation.parties[name]
                self._verifiers[name] = Verifier(name, certificates[seat], pin)
            content = self._terms.content(name, stage, digests[seat], more[seat] if more else b"")
            self._verifiers[name].check(f"the list of {name} in stage {stage}", content, signatures[seat])
        if 0 < stage < len(names) and digests[SERVER_SEAT] != self.digests[-1][-1]:
            raise ContractError(SERVER, "Pledges", "digests", f"the list that {names[-1]} has passed to it", "another")
        self.digests.append(tuple(digests))
        self.keys = self.keys or list(more)

    def check(self, stage: int, came: bytes) -> None:
        """Compares a list received in a stage with its sender's pledge. Raises ContractError."""
        names = (SERVER, *self._terms.federation.names)
        seat = self.seat - 1
        if came != self.digests[stage][seat]:
            blame = names[seat] if seat == SERVER_SEAT else f"{names[seat]} or {SERVER}"
            raise ContractError(
                names[seat], "Points", "points", f"the list that {names[seat]} has committed itself to",
                f"another: {blame} has changed it",
            )  # fmt: skip

    @property
    def commitments(self) -> dict[str, str]:
        """Hexadecimal digest of every member's own list, by name."""
        names = (SERVER, *self._terms.federation.names)
        return {name: digest.hex() for name, digest in zip(names, self.digests[0], strict=True)} if self.digests else {}
