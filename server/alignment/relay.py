"""Alignment, server side: relays all lists, adds its own, and compares the raised lists."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from colonnade.common.alignment.checks import (
    ListDigest,
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
from colonnade.common.alignment.limits import DailyLimits
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
from colonnade.common.alignment.proofs import KEYS, ProofTerms, ProvenExponent
from colonnade.common.alignment.psi_member import SHUFFLED, PsiMember, Seed, about, draw_for, tag_of
from colonnade.common.alignment.psi_ring import SERVER_SEAT, PsiRing
from colonnade.common.alignment.scratch import (
    NUMBER,
    Scratch,
    Sorter,
    compare,
    distinct,
    places_of,
    to_numbers,
    to_records,
)
from colonnade.common.alignment.work import T, Work, at_once
from colonnade.common.config.alignment import few_common, may_be_empty, refuse_nothing, refuse_other_sizes
from colonnade.common.config.federation import AlignChecks, FederationConfig
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.crypto.proven import POINT
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import ContractError, InputError, PartyAway
from colonnade.common.messaging.message import M, check_exact
from colonnade.common.messaging.outgoing import MaskedTensor, nothing
from colonnade.common.messaging.raw import lay_out, to_bytes, to_tensor

_NONE = nothing(0, ELEMENT, dtype=torch.uint8)


@dataclass
class Aligning:
    """One alignment, from the parties' counts to a file at every member.

    Args:
        keep: called with the alignment's number and the server's rows, once every party has stored its own.
        work: runs slow computations.
        report: called with the number of exchanges done and their total.
        warn: called with a warning about the number of common keys, in training.
        block: keys per message.
        exponent: makes an exponent from a fresh secret, possibly an older stored one; None for one used only here.
        after: number of rounds before the alignment.
        already: number of common keys known from a stored alignment, which `keys` leaves out.
        daily: limits what parties test in a day.
        partial: True for a prediction.
    """

    federation: FederationConfig
    keys: RowKeys
    session: Session
    cohort: Cohort
    keep: Callable[[str, Tensor], None] = lambda _number, _rows: None
    work: Work = at_once
    report: Callable[[int, int], None] = lambda _done, _of: None
    warn: Callable[[str], None] = lambda _reason: None
    block: int = BLOCK
    seed: Seed = field(default_factory=Seed)
    exponent: MakeExponent | None = None
    after: int = 0
    already: int = 0
    daily: DailyLimits = field(default_factory=DailyLimits)
    checks: AlignChecks = "none"
    nonces: tuple[bytes, ...] = ()
    partial: bool = False
    _round: int = field(default=0, init=False)
    _planted: int = field(default=0, init=False)
    _proving: ServerProving | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._members = (SERVER, *self.federation.names)
        self._pledges = RelayedPledges()

    @property
    def commitments(self) -> dict[str, str]:
        """Digest of every member's own list, hexadecimal, by name; empty without checks."""
        first = self._pledges.digests[:1]
        return {name: own.hex() for own_list in first for name, own in zip(self._members, own_list, strict=True)}

    async def __call__(self) -> Tensor:
        """The server's rows that all members have, int64 (common,), in the common order.

        Raises DataError if no key is common, or with `sorted` if not all keys are the same.
        """
        ring, hand = await self._gather()
        if self.checks == "proofs":
            terms = PledgeTerms(self.session, self.federation, self.nonces)
            self._proving = ServerProving(hand, terms, ring, self._pledges)
        lists = await self._go_round(ring, hand)
        common, places = await self.work(partial(compare, lists, self.keys.folder, hand.exponent.width))
        del lists
        number = secrets.token_hex(8)
        rows = len(self.keys) * common if self.federation.align == "sorted" else common
        self._round += 1
        await self.cohort.broadcast(Common(self._round, rows, number))
        refuse_missing(common, self._planted)
        if not may_be_empty(self.federation.align, predicting=self.partial):
            refuse_nothing(self.federation.align, common - self._planted + self.already)
        if not self.partial and (
            doubt := few_common(rows - self._planted, [size - self._planted for size in ring.sizes])
        ):
            self.warn(doubt)
        if self.federation.align == "sorted":
            found = torch.tensor(self.keys.order)
        else:
            found = await self._come_back(ring, hand, list(places.values()), common)
        if self._planted:
            found = await self._examine(found)
        await self._hear(Kept)
        self.keep(number, found)
        self.seed.forget()
        await self.cohort.broadcast(Settled(self._round))
        return found

    async def _gather(self) -> tuple[PsiRing, PsiMember]:
        self._round = self.after + 1
        census = await self._hear(Census)
        for party, count in census.items():
            if not count.rows:
                raise ContractError(party, "Census", "rows", "at least 1", "0")
        self.daily.count({party: count.rows for party, count in census.items()})
        sizes = (len(self.keys), *(count.rows for count in census.values()))
        await self.cohort.broadcast(Sizes(self._round, torch.tensor(sizes)))
        keys = self.keys
        refuse_other_sizes(self.federation.align, self._members, sizes)
        if self.federation.align == "sorted":
            keys, sizes = keys.as_one, (1,) * len(sizes)
        if self.checks == "planted":
            self._planted = planted_among(sizes)
            keys, sizes = with_planted(keys, self._planted), tuple(rows + self._planted for rows in sizes)
        ring = PsiRing(sizes, self.block)
        tag = tag_of(self.session)
        own = self.seed.draw(about(tag, ring, self.keys, self.nonces if one_time(self.checks) else ()))
        return ring, PsiMember(
            ring, SERVER_SEAT, keys, tag, draw_for(self.federation, SERVER, own),
            exponent=ProvenExponent if self.checks == "proofs" else self.exponent,
            checked=self.checks != "none",
        )  # fmt: skip

    async def _go_round(self, ring: PsiRing, hand: PsiMember) -> dict[str, Sorter]:
        longest, width = max(ring.sizes), hand.exponent.width  # the longest list sets the number of buckets in all
        lists = {member: Sorter(longest, width, width + NUMBER, self.keys.folder) for member in self._members}
        last = [ListDigest(size, width, self.keys.folder) for size in ring.sizes] if self.checks != "none" else []
        for stage in range(ring.members):
            if self.checks != "none":
                await self._pledge(ring, hand, stage)
            for block in range(ring.blocks()):
                held = await self._exchange(ring, hand, stage, block)
                if stage < ring.members - 1:
                    await self._pass_on(hand, stage, block, held)
                else:
                    for owner, digest in enumerate(last):
                        digest.add(held[(owner - 1) % ring.members].numpy())
                    await self._end_block()  # the next one travels meanwhile
                    home = await self._accept(partial(hand.take_back, held[-1]))
                    await self.work(partial(self._lay_down, ring, lists, block, [*held[:-1], home]))
                self.report(stage * ring.blocks() + block + 1, ring.members * ring.blocks())
            if self.checks != "none" and stage < ring.members - 1:
                self._pledges.check(self._members[-1], ring.members - 1, stage, hand.came)
        await self._check_last(last)
        return lists

    async def _pledge(self, ring: PsiRing, hand: PsiMember, stage: int) -> None:
        """Members commit themselves to the lists of a stage before any of it is sent; first, each to its own."""
        blocks = 1 if stage else ring.blocks()
        for block in range(blocks):
            self._round += 1
            if not stage:
                await self.work(partial(hand.prepare, block))
            came = await self._hear(Pledge)
            own = hand.sent if block == blocks - 1 else b""
            await self.cohort.broadcast(self._pledges.collect(came, self._round, own))

    async def _examine(self, found: Tensor) -> Tensor:
        """The server's rows without the planted ones, if these are complete and at the same positions everywhere."""
        rows, places = without_planted(found, len(self.keys), self._planted)
        self._round += 1
        await self.cohort.broadcast(self._pledges.collect(await self._hear(Pledge), self._round, places))
        refuse_other_places(self._members, self._pledges.digests[-1])
        return rows

    async def _check_last(self, lists: list[ListDigest]) -> None:
        for owner, own in enumerate(lists):
            if seat := (owner - 1) % len(lists):  # the server holds seat 0's list itself
                party = self._members[seat]
                try:
                    digest = await self.work(own.digest)
                except InputError as broken:
                    raise ContractError(party, "Points", "points", "a list of its elements", str(broken)) from None
                self._pledges.check(party, seat, len(lists) - 1, digest)

    async def _exchange(self, ring: PsiRing, hand: PsiMember, stage: int, block: int) -> list[MaskedTensor]:
        """The blocks that the members pass on, by seat, the server's first."""
        self._round += 1
        own = await self.work(partial(hand.give, stage, block))
        if self._proving is not None:
            return await self._exchange_proved(self._proving, own, stage, block)
        came = await self._hear(Points)
        for index, (party, message) in enumerate(came.items(), start=1):
            check_exact(party, message, {"keys": ring.length(ring.owner(index, stage), block), "element": ELEMENT})
        return [own, *(message.points for message in came.values())]

    async def _exchange_proved(
        self, proving: ServerProving, own: MaskedTensor, stage: int, block: int
    ) -> list[MaskedTensor]:
        """As `_exchange`, with proofs: boxes sealed for the next party are relayed at once, and empty here."""
        came = await self._hear(Proved)
        last = stage == len(self._members) - 1
        held = [own, *[_NONE] * len(came)]
        if not last:
            await proving.relay(self.cohort, own, came, self._round)
        for seat, message in enumerate(came.values(), start=1):
            if last or seat == len(came):
                held[seat] = await self.work(partial(proving.read, seat, stage, block, message.box))
        return held

    async def _end_block(self) -> None:
        if self._proving is None:
            await self.cohort.broadcast(Points(self._round, _NONE))
        else:
            await self._proving.end(self.cohort, self._round)

    async def _pass_on(self, hand: PsiMember, stage: int, block: int, held: list[MaskedTensor]) -> None:
        """Sends every party's block to the next party, and the last party's to the server."""
        if self._proving is None:
            names = self.federation.names
            await self.cohort.broadcast({name: Points(self._round, held[index]) for index, name in enumerate(names)})
        await self._accept(partial(hand.take, stage, block, held[-1]))

    async def _accept(self, call: Callable[[], T]) -> T:
        """Takes points from the last party, which precedes the server in the ring."""
        try:
            return await self.work(call)
        except InputError as broken:
            last = self.federation.names[-1]
            raise ContractError(last, "Points", "points", "elements of the curve", str(broken)) from None

    def _lay_down(self, ring: PsiRing, lists: dict[str, Sorter], block: int, held: list[Tensor]) -> None:
        for index, points in enumerate(held):
            owner, raiser = ring.owner(index, ring.members - 1), self.federation.names[index - 1]
            try:
                lists[self._members[owner]].add(np.hstack([points.numpy(), places_of(ring.span(owner, block))]))
            except InputError as broken:
                raise ContractError(raiser, "Points", "points", "raised points", str(broken)) from None

    async def _come_back(self, ring: PsiRing, hand: PsiMember, at: list[Scratch], common: int) -> Tensor:
        """Positions of the common keys in the server's table: every member undoes its shuffle of every list."""
        for stage in range(ring.members):
            owners = [ring.owner_back(index, stage) for index in range(ring.members)]
            for span in ring.spans_of(common):
                self._round += 1
                own, *others = (to_numbers(at[owner].read(span.start, span.stop - span.start)) for owner in owners)
                messages = (Positions(self._round, MaskedTensor(after, SHUFFLED)) for after in others)
                await self.cohort.broadcast(dict(zip(self.federation.names, messages, strict=True)))
                at[owners[SERVER_SEAT]].write(span.start, to_records(hand.undo(owners[SERVER_SEAT], own)))
                await self._take_back(ring, owners, at, span, last=stage == ring.members - 1)
        found = at[SERVER_SEAT].numbers(common)
        if not distinct(found, len(self.keys) + self._planted):
            raise ContractError(self.federation.names[0], "Positions", "positions", "every row once", "some again")
        return found

    async def _take_back(self, ring: PsiRing, owners: list[int], at: list[Scratch], span: slice, *, last: bool) -> None:
        """Stores the parties' responses in a stage of the return; they are empty in the last stage."""
        came = await self._hear(Positions)
        for owner, (party, message) in zip(owners[1:], came.items(), strict=True):
            check_exact(party, message, {"keys": 0 if last else span.stop - span.start})
            if last:
                continue
            found, size = message.positions, ring.sizes[owner]
            if int(found.min()) < 0 or int(found.max()) >= size:
                raise ContractError(party, "Positions", "positions", f"0 to {size - 1}", "others")
            at[owner].write(span.start, to_records(found))

    async def _hear(self, kind: type[M]) -> Responses[M]:
        patience = Quorum(limit=self.federation.timeouts.answer)
        responses = await self.cohort.collect(kind, self._round, patience)
        if responses.missing:
            raise PartyAway(responses.missing[0], "it is gone while rows are aligned, which needs every list")
        return responses


@dataclass
class ServerProving:
    """The server's side of the lists in one alignment with proofs; `hand` makes and takes the server's lists."""

    hand: PsiMember
    terms: PledgeTerms
    ring: PsiRing
    pledges: RelayedPledges
    _proofs: ProofTerms | None = field(default=None, init=False)

    async def relay(self, cohort: Cohort, own: Tensor, came: Responses[Proved], round: int) -> None:
        """Sends every party's box to the next party, and the server's own list to the first."""
        names = self.terms.federation.names
        boxes = [MaskedTensor(own.flatten(), "a list of the server"), *(message.box for message in came.values())]
        await cohort.broadcast({name: Proved(round, boxes[index]) for index, name in enumerate(names)})

    async def end(self, cohort: Cohort, round: int) -> None:
        await cohort.broadcast(Proved(round, nothing(0, dtype=torch.uint8)))

    def read(self, seat: int, stage: int, block: int, box: Tensor) -> MaskedTensor:
        """Verifies a block that a party sent to the server; returns its elements, uint8 (keys, 64).

        Raises ContractError if the party did not prove that it raised the list that it received to its exponent.
        """
        name = self.terms.federation.names[seat - 1]
        if self._proofs is None:
            for party, pledged in zip(self.terms.federation.names, self.pledges.keys[1:], strict=True):
                if len(pledged) != KEYS:
                    raise ContractError(party, "Pledge", "keys", f"{KEYS} bytes", str(len(pledged)))
            pledges = self.pledges
            self._proofs = ProofTerms(self.terms, self.ring, pledges.digests, pledges.keys, self.hand.folder)
        content = self._proofs.read(name, seat, stage, block, to_bytes(box))
        return MaskedTensor(to_tensor(content).view(-1, POINT), "a list of a party")


@dataclass
class RelayedPledges:
    """The pledges of all members in one alignment.

    Attributes:
        digests: by stage, the digests of all members' lists, the server's first.
        keys: pledged by the members with their own lists, the server's (empty) first.
    """

    digests: list[tuple[bytes, ...]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    def collect(self, came: Responses[Pledge], round: int, own: bytes) -> Pledges:
        """Takes one pledge of every party, and returns what to show to all.

        `own` is the digest of the server's own list; empty while lists are raised, when all pledges are empty.
        """
        for party, pledge in came.items():
            if len(pledge.digest) != len(own):
                raise ContractError(party, "Pledge", "digest", f"{len(own)} bytes", str(len(pledge.digest)))
        if not own:
            return Pledges(round, torch.empty(0, DIGEST, dtype=torch.uint8), *lay_out([]), *lay_out([]), _NO_KEYS)
        parties = list(came.values())
        digests = torch.stack([to_tensor(own), *(pledge.digest for pledge in parties)])
        self.digests.append(tuple(to_bytes(one) for one in digests))
        certificates = lay_out([_NO_BYTES, *(pledge.certificate for pledge in parties)])
        signatures = lay_out([_NO_BYTES, *(pledge.signature for pledge in parties)])
        if len({len(pledge.keys) for pledge in parties}) > 1:
            raise ContractError(next(iter(came)), "Pledge", "keys", "as many bytes as others", "fewer or more")
        keys = torch.stack([pledge.keys for pledge in parties])
        self.keys = self.keys or [b"", *map(to_bytes, keys)]
        return Pledges(round, digests, *certificates, *signatures, keys)

    def check(self, party: str, seat: int, stage: int, digest: bytes) -> None:
        """Raises ContractError if the digest of a list received from a party differs from the party's pledge."""
        if digest != self.digests[stage][seat]:
            raise ContractError(party, "Points", "points", "the list that it has committed itself to", "another")


_NO_BYTES = to_tensor(b"")
_NO_KEYS = torch.empty(0, 0, dtype=torch.uint8)
