"""Alignment, party side: raises and shuffles every list that passes, and finds its own common rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from colonnade.common.alignment.checks import (
    PledgeBook,
    PledgeTerms,
    one_time,
    planted_among,
    refuse_missing,
    refuse_other_places,
    with_planted,
    without_planted,
)
from colonnade.common.alignment.exponent import MakeExponent
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.limits import DailyLimits, ForeignKeys
from colonnade.common.alignment.messages import (
    BLOCK,
    DIGEST,
    Census,
    Common,
    Kept,
    Pledge,
    Pledges,
    Points,
    Positions,
    Proved,
    Settled,
    Sizes,
)
from colonnade.common.alignment.proofs import KEYS, ProofTerms, ProvenExponent, SealKey
from colonnade.common.alignment.psi_member import PsiMember, Seed, about, draw_for, tag_of
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.alignment.scratch import NUMBER, Scratch, distinct, to_records
from colonnade.common.alignment.work import Work, at_once
from colonnade.common.config.alignment import may_be_empty, refuse_nothing, refuse_other_sizes
from colonnade.common.config.federation import AlignChecks, FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.proven import POINT
from colonnade.common.crypto.sealing import Seals, Session
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.message import M
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.messaging.raw import take_apart, to_bytes, to_tensor


@dataclass
class Matching:
    """One alignment.

    Args:
        admit_masked: the egress's; admits the points that we have blinded and shuffled.
        keep: called with the alignment's number and our rows; they are durable when it returns.
        foreign: counts others' keys; None counts them for this alignment alone.
        warn: called when an alignment that was not completed is repeated.
        exponent: makes an exponent, perhaps a kept one, from a fresh secret; None for one used in this alignment alone.
        already: common keys that are known from a kept alignment, and are not asked for again.
        nonces: all members' random numbers, to which pledges of lists are bound.

    Attributes:
        commitments: digest of every member's own list, by name, once all have pledged theirs; empty without checks.
    """

    name: str
    federation: FederationConfig
    policy: PolicyConfig
    keys: RowKeys
    session: Session
    server: Link
    admit_masked: Callable[[MaskedTensor], MaskedTensor] = lambda value: value
    keep: Callable[[str, Tensor], None] = lambda _number, _rows: None
    work: Work = at_once
    report: Callable[[int, int], None] = lambda _done, _of: None
    block: int = BLOCK
    seed: Seed = field(default_factory=Seed)
    foreign: ForeignKeys | None = None
    warn: Callable[[str], None] = lambda _reason: None
    exponent: MakeExponent | None = None
    after: int = 0
    already: int = 0
    daily: DailyLimits = field(default_factory=DailyLimits)
    checks: AlignChecks = "none"
    nonces: tuple[bytes, ...] = ()
    identity: Identity | None = None
    partial: bool = False
    _round: int = field(default=0, init=False)
    _planted: int = field(default=0, init=False)
    _proving: PartyProving | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._members = (SERVER, *self.federation.names)
        self._seat = self._members.index(self.name)
        self._foreign = self.foreign or ForeignKeys(self.name, self.policy.max_other_rows)
        self._sizes: tuple[int, ...] = ()  # as announced, also where `sorted` lists have one element
        terms = PledgeTerms(self.session, self.federation, self.nonces)
        self._book = PledgeBook(self.name, terms, self.identity)
        self._hash = hashlib.sha256()  # of the list that is arriving

    @property
    def commitments(self) -> dict[str, str]:
        return self._book.commitments

    async def __call__(self) -> Tensor:
        """Rows of this party that all members have, int64 (common,), in the common order."""
        ring, hand = await self._gather()
        terms = PledgeTerms(self.session, self.federation, self.nonces)
        self._proving = PartyProving(hand, terms, ring, self._book) if self.checks == "proofs" else None
        keys = b"" if self._proving is None else self._proving.keys
        pledging = PartyPledging(self._book, ring, hand, self.server, self.work, keys)
        await self._go_round(ring, hand, pledging)
        self._round += 1
        common = await self._hear(Common)
        self._judge(common)
        if self.federation.align == "sorted":
            found = torch.tensor(self.keys.order)
        else:
            found = await self._come_back(ring, hand, common.rows)
        if self._planted:
            found = await self._examine(pledging, found)
        self.keep(common.number, found)
        await self.server.send(Kept(self._round))
        await self._hear(Settled)
        self._foreign.settle()
        self.seed.forget()
        return found

    async def _gather(self) -> tuple[PsiRing, PsiMember]:
        self._round = self.after + 1
        await self.server.send(Census(self._round, len(self.keys)))
        self._sizes = sizes = tuple((await self._hear(Sizes, members=len(self._members))).rows.tolist())
        self._refuse_sizes(sizes)
        self.daily.count({SERVER: sum(sizes) - len(self.keys)})  # on its word, whosever it says they are
        self._tell_repeat(self._foreign.begin())
        keys = self.keys
        if self.federation.align == "sorted":
            keys, sizes = keys.as_one, (1,) * len(sizes)
        if self.checks == "planted":
            self._planted = planted_among(sizes)
            keys, sizes = with_planted(keys, self._planted), tuple(rows + self._planted for rows in sizes)
        ring = PsiRing(sizes, self.block)
        tag = tag_of(self.session)
        own = self.seed.draw(about(tag, ring, self.keys, self.nonces if one_time(self.checks) else ()))
        return ring, PsiMember(
            ring, self._seat, keys, tag, draw_for(self.federation, self.name, own),
            exponent=ProvenExponent if self.checks == "proofs" else self.exponent,
            checked=self.checks != "none",
        )  # fmt: skip

    async def _examine(self, pledging: PartyPledging, found: Tensor) -> Tensor:
        """Our rows without the planted ones, once all members found every planted key in the same place."""
        rows, places = without_planted(found, len(self.keys), self._planted)
        self._round = await pledging.exchange(pledging.ring.members, self._round, places)
        refuse_other_places(self._members, self._book.digests[-1])
        return rows

    def _tell_repeat(self, before: int) -> None:
        if before:
            self.warn(
                f"attempt {before + 1} to align the rows: the earlier ones were broken off. Keys of another "
                "member whose list is not the same as before are added to those that count towards max_other_rows"
            )

    async def _go_round(self, ring: PsiRing, hand: PsiMember, pledging: PartyPledging) -> None:
        for stage in range(ring.members):
            if self.checks != "none":
                self._round = await pledging.exchange(stage, self._round)
            await self._give(hand, stage, 0)
            for block in range(ring.blocks()):
                self._round += 1
                points = await self._receive(ring, stage, block)
                if block + 1 < ring.blocks():
                    await self._give(hand, stage, block + 1)  # travels while this one is raised
                if points is not None:
                    await self._take(ring, hand, stage, block, points)
                self.report(stage * ring.blocks() + block + 1, ring.members * ring.blocks())
            if self.checks != "none" and stage < ring.members - 1:
                pledging.check(stage)

    async def _give(self, hand: PsiMember, stage: int, block: int) -> None:
        """Sends a block in the next round."""
        if self._proving is None:
            points = await self.work(partial(hand.give, stage, block))
            await self.server.send(Points(self._round + 1, self.admit_masked(points)))
        else:
            box = await self.work(partial(self._proving.give, stage, block))
            await self.server.send(Proved(self._round + 1, self.admit_masked(box)))

    async def _receive(self, ring: PsiRing, stage: int, block: int) -> Tensor | None:
        """The block as it arrived; None in the last stage, which passes nothing on."""
        last = stage == ring.members - 1
        if self._proving is not None:
            box = (await self._hear(Proved, **({"box": 0} if last else {}))).box
            return None if last else box
        keys = 0 if last else ring.length(ring.owner(self._seat, stage + 1), block)
        points = (await self._hear(Points, keys=keys, element=ELEMENT)).points
        return None if last else points

    async def _take(self, ring: PsiRing, hand: PsiMember, stage: int, block: int, points: Tensor) -> None:
        owner = ring.owner(self._seat, stage + 1)
        if self._proving is not None:
            points = await self.work(partial(self._proving.take, stage, block, points))
        self._count(owner, block, points, last=block == ring.blocks() - 1)
        try:
            await self.work(partial(hand.take, stage, block, points))
        except InputError as broken:
            raise ContractError(SERVER, "Points", "points", "elements of the curve", str(broken)) from None

    def _count(self, owner: int, block: int, points: Tensor, *, last: bool) -> None:
        """Counts a list once it is complete, and before any of it is passed on."""
        if not block:
            self._hash = hashlib.sha256()
        self._hash.update(to_bytes(points))
        if last:
            self._foreign.count(self._members[owner], self._sizes[owner], self._hash.hexdigest())

    async def _come_back(self, ring: PsiRing, hand: PsiMember, rows: int) -> Tensor:
        """Undoes our shuffle in every list for the common keys; our own list comes last."""
        own = Scratch(NUMBER, self.keys.folder)
        for stage in range(ring.members):
            owner = ring.owner_back(self._seat, stage)
            for span in ring.spans_of(rows):
                self._round += 1
                came = await self._hear(Positions, keys=span.stop - span.start)
                before = self._undo(hand, owner, came.positions)
                if owner == self._seat:
                    own.write(span.start, to_records(before))
                await self.server.send(Positions(self._round, self.admit_masked(hand.next_positions(owner, before))))
        found = own.numbers(rows)
        if not distinct(found, len(self.keys) + self._planted):
            raise ContractError(SERVER, "Positions", "positions", "every row once", "some again")
        return found

    @staticmethod
    def _undo(hand: PsiMember, owner: int, positions: Tensor) -> Tensor:
        try:
            return hand.undo(owner, positions)
        except InputError as broken:
            raise ContractError(SERVER, "Positions", "positions", str(broken), "others") from None

    async def _hear(self, kind: type[M], **dims: int) -> M:
        came = await self.server.recv(kind, self._round, **dims)
        if came is None:
            raise ContractError(SERVER, kind.__name__, "", "the rest of the alignment", "a round of the protocol")
        return came

    def _refuse_sizes(self, sizes: tuple[int, ...]) -> None:
        """Checks all sizes against ours and our policy before any of our points leave."""
        if min(sizes) < 1 or sizes[self._seat] != len(self.keys):
            expected = f"at least 1 each, and {len(self.keys)} for {self.name}"
            raise ContractError(SERVER, "Sizes", "rows", expected, str(list(sizes)))
        for member, rows in zip(self._members, sizes, strict=True):
            if member != self.name:
                self._foreign.expect(member, rows)
        refuse_other_sizes(self.federation.align, self._members, sizes)

    def _judge(self, common: Common) -> None:
        """Checks the number of common keys before any member knows which they are."""
        allowed = (
            (0, len(self.keys)) if self.federation.align == "sorted" else range(len(self.keys) + self._planted + 1)
        )
        if common.rows not in allowed:
            raise ContractError(SERVER, "Common", "rows", f"at most our {len(self.keys)}", str(common.rows))
        if not common.number:
            raise ContractError(SERVER, "Common", "number", "the alignment's own", "none")
        refuse_missing(common.rows, self._planted)
        total = common.rows - self._planted + self.already
        if total or not may_be_empty(self.federation.align, predicting=self.partial):
            refuse_nothing(self.federation.align, total)
            self.policy.refuse_few(self.name, total, predicting=self.partial)


@dataclass
class PartyPledging:
    book: PledgeBook
    ring: PsiRing
    hand: PsiMember
    server: Link
    work: Work
    keys: bytes = b""

    async def exchange(self, stage: int, round: int, places: bytes = b"") -> int:
        """Pledges the list that we send in a stage, and records all members' pledges. Returns the last round used.

        Args:
            stage: the list's stage; after the last one, `places` are pledged.
            places: where we found the planted keys.
        """
        blocks = self.ring.blocks() if not stage else 1
        for block in range(blocks):
            round, last = round + 1, block == blocks - 1
            if not stage:
                await self.work(partial(self.hand.prepare, block))
            await self.server.send(
                self._pledge(stage, round, places or self.hand.sent) if last else Pledge(round, *[_NONE] * 4)
            )
            members = self.ring.members if last else 0
            pledges = await self.server.recv(Pledges, round, members=members, digest=DIGEST)
            if pledges is None:
                raise ContractError(SERVER, "Pledges", "", "the rest of the alignment", "a round of the protocol")
            if last:
                self._enter(stage, pledges, places or self.hand.sent)
        return round

    def check(self, stage: int) -> None:
        """Compares the list that arrived in a stage with its sender's pledge. Raises ContractError."""
        self.book.check(stage, self.hand.came)

    def _pledge(self, stage: int, round: int, digest: bytes) -> Pledge:
        certificate, keys = (b"", b"") if stage else (self.book.signer.certificate, self.keys)
        signature = self.book.sign(stage, digest, keys)
        return Pledge(round, *map(to_tensor, (digest, certificate, signature, keys)))

    def _enter(self, stage: int, pledges: Pledges, digest: bytes) -> None:
        try:
            certificates = take_apart(pledges.certificates, pledges.certificate_lengths)
            signatures = take_apart(pledges.signatures, pledges.signature_lengths)
        except ValueError as wrong:
            raise ContractError(SERVER, "Pledges", "lengths", str(wrong), "others") from None
        own = to_bytes(pledges.digests[self.book.seat])
        if own != digest:
            raise ContractError(SERVER, "Pledges", "digests", f"that of {self.book.name} in its place", "another")
        keys = [b"", *map(to_bytes, pledges.keys)] if not stage and self.keys else []
        if keys and (len(keys) != len(pledges.digests) or keys[self.book.seat] != self.keys):
            raise ContractError(SERVER, "Pledges", "keys", f"that of {self.book.name} in its place", "another")
        said, papers, signed = (
            [to_bytes(one) for one in column] for column in (pledges.digests, certificates, signatures)
        )
        self.book.enter(stage, said, papers, signed, keys)


_NONE = to_tensor(b"")


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
