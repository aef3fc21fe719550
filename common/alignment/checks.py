"""Checks among members who may lie: signed digests of lists, and planted keys (docs/alignment_checks.md).

A member pledges each list that it sends: it signs a digest, the same in any order. All members plant the same keys,
which are in no table. Once raised and shuffled they look like any key that all members have, so a member that changes
elements or positions changes planted ones too: one element in twenty is planted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys, Values
from colonnade.common.alignment.psi_ring import SERVER_SEAT
from colonnade.common.alignment.scratch import Records, Sorter, again, words
from colonnade.common.config.federation import AlignChecks, FederationConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.crypto.signatures import Signer, Verifier
from colonnade.common.errors import ContractError, InputError, PeerError


class ListDigest:
    """Hashes the elements of a list in ascending order, so that a shuffle does not change the digest.

    Elements are raised to a secret of their sender, the salt of the commitment: no key can be tested against it.
    """

    def __init__(self, rows: int, width: int, folder: Path | None = None) -> None:
        self._sorter, self._width = Sorter(rows, width, width, folder), width
        self._hash = hashlib.sha256(rows.to_bytes(8))

    def add(self, elements: Records) -> None:
        if len(elements):
            self._sorter.add(elements)

    def digest(self) -> bytes:
        """SHA-256 over the number of elements and all elements.

        Refuses (InputError) an element that repeats: repeats would show how often a member passes each key on.
        """
        for bucket in self._sorter.sorted():
            if twice := again(words(bucket, self._width)):
                raise InputError(f"every element once, {twice} come again")
            self._hash.update(np.ascontiguousarray(bucket).tobytes())
        return self._hash.digest()


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
        digests: all members' lists by stage, the server's first.
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
            stage: the stage entered; after the last one, digests are those of the planted keys' places.
            digests: all members', the server's first.
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


_REST = 19  # keys to each planted one: 5 % of a list are planted
_HINT = (
    "align again with align_checks: proofs, which name a member that has raised a list otherwise; nothing of this "
    "alignment is kept (docs/alignment_checks.md, After a refusal)"
)
_HINT_OF_PLACES = (
    "no check names who has changed them, proofs neither; nothing of this alignment is kept (docs/alignment_checks.md, "
    "After a refusal)"
)


def planted_among(sizes: Sequence[int]) -> int:
    """Number of keys to plant in each list, so that they are 5 % of the longest."""
    return -(-max(sizes) // _REST)


def with_planted(keys: RowKeys, count: int) -> RowKeys:
    """A member's keys, followed by the planted ones."""
    return RowKeys(_WithPlanted(keys.values, count), keys.folder)


@dataclass(frozen=True)
class _WithPlanted:
    own: Values
    count: int

    def __getitem__(self, row: int, /) -> bytes:
        return self.own[row] if row < len(self.own) else _key(row - len(self.own))

    def __iter__(self) -> Iterator[bytes]:
        yield from self.own
        yield from map(_key, range(self.count))

    def __len__(self) -> int:
        return len(self.own) + self.count


def refuse_missing(found: int, planted: int) -> None:
    """Refuses a result that lacks planted keys: all members have them, so a list was changed."""
    if found < planted:
        said = f"a member has changed a list of the alignment: {planted - found} of {planted} planted keys are missing"
        raise PeerError(said, hint=_HINT, shared=said)


def without_planted(found: Tensor, rows: int, planted: int) -> tuple[Tensor, bytes]:
    """The member's own common rows, int64 (common,), and 32 bytes that are equal at all members if their orders are.

    Args:
        found: rows of the table with planted keys, each once, int64 (common + planted,).
        rows: number of rows of the table itself.
    """
    there = found >= rows
    refuse_missing(int(there.sum()), planted)
    places = torch.stack([torch.nonzero(there)[:, 0], found[there] - rows])
    return found[~there], hashlib.sha256(places.numpy().tobytes()).digest()


def refuse_other_places(members: Sequence[str], digests: Sequence[bytes]) -> None:
    """Refuses planted keys in other places than the server's: positions were changed on their way back."""
    if others := [name for name, digest in zip(members, digests, strict=True) if digest != digests[0]]:
        said = f"a member has changed positions of common rows: planted keys have other places at {', '.join(others)}"
        raise PeerError(said, hint=_HINT_OF_PLACES, shared=said)


def _key(number: int) -> bytes:
    return b"\xffplanted %d" % number  # no text in UTF-8 begins with this byte, so it is no key of a table


def checks_of(agreed: AlignChecks, *, whole: bool) -> AlignChecks:
    """Checks of one alignment: as agreed for whole tables; signatures suffice for the few keys of a prediction."""
    return agreed if whole or agreed == "none" else "signed"


def one_time(checks: AlignChecks) -> bool:
    """True if an alignment needs fresh secrets.

    After an alignment a member can recognize planted keys in the lists that it passed on; under the same secrets it
    would recognize them again. Exponents with proofs are in another group, in which nothing is kept.
    """
    return checks in ("planted", "proofs")
