"""Lists with proofs, party side: seals lists for the next party, and verifies those that arrive."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from colonnade.common.alignment.checks.pledge import PledgeBook, PledgeTerms
from colonnade.common.alignment.checks.proving import KEYS, ProofTerms, ProvenExponent, SealKey
from colonnade.common.alignment.psi_member import PsiMember
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.proven import POINT
from colonnade.common.crypto.sealing import Seals
from colonnade.common.errors import ContractError
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.messaging.raw import to_bytes, to_tensor

_PURPOSE = "list of an alignment"


@dataclass
class PartyProving:
    hand: PsiMember
    terms: PledgeTerms
    ring: PsiRing
    book: PledgeBook
    _key: SealKey = field(default_factory=SealKey, init=False)
    _seals: Seals | None = field(default=None, init=False)
    _proofs: ProofTerms | None = field(default=None, init=False)

    @property
    def keys(self) -> bytes:
        return self._exponent.multiplier.public + self._key.public

    def give(self, stage: int, block: int) -> MaskedTensor:
        """The box of a block to send, uint8 (bytes,). For the server the content is protected by TLS alone."""
        rows = self.hand.give(stage, block)
        content = self._terms.make(self._exponent, self.book.seat, stage, block, to_bytes(rows))
        to = self._next(stage)
        if to == SERVER:
            return MaskedTensor(to_tensor(content), rows.mechanism)
        return MaskedTensor(to_tensor(self._sealed.seal(to, content, _PURPOSE, stage, block)), "a list, sealed")

    def take(self, stage: int, block: int, box: Tensor) -> Tensor:
        """Verifies a block that arrived, and returns its elements, uint8 (keys, 64).

        Raises:
            SealError: a box was altered.
            ContractError: the sender has not proved that it raised the list it received to its exponent.
        """
        seat, content = self.book.seat - 1, to_bytes(box)
        sender = (SERVER, *self.terms.federation.names)[seat]
        if sender != SERVER:
            content = self._sealed.open(sender, content, _PURPOSE, stage, block)
        return to_tensor(self._terms.read(sender, seat, stage, block, content)).view(-1, POINT)

    def _next(self, stage: int) -> str:
        names = self.terms.federation.names
        return SERVER if stage == self.ring.members - 1 or self.book.seat == len(names) else names[self.book.seat]

    @property
    def _exponent(self) -> ProvenExponent:
        assert isinstance(self.hand.exponent, ProvenExponent)  # the exponent was made for proofs
        return self.hand.exponent

    @property
    def _terms(self) -> ProofTerms:
        if self._proofs is None:
            self._proofs = ProofTerms(self.terms, self.ring, self.book.digests, self.book.keys, self.hand.folder)
        return self._proofs

    @property
    def _sealed(self) -> Seals:
        if self._seals is None:
            names = self.terms.federation.names
            others = dict(zip(names, self.book.keys[1:], strict=True))
            del others[self.book.name]
            for name, pledged in others.items():
                if len(pledged) != KEYS:
                    raise ContractError(name, "Pledge", "keys", f"{KEYS} bytes", str(len(pledged)))
            self._seals = self._key.seals(self.book.name, others, self.terms)
        return self._seals
