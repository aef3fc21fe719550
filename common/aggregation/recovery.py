"""Keys of double masks, and shares of them from which a sum is recovered without parties that vanish.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017), Sections 4, 6.
In each round party k has two secrets that any t parties can open together: b_k, of its own mask, and e_k, which
encrypts its keys with all others, stored at the server. b_k is opened for parties whose words arrived, e_k for those
that vanished.

    ahead     party k    shares of b_k and e_k of 32 rounds, each under a pad, and its keys under e_k   -> server
    round t   party k    [v_k], the words under the masks of its pairs and its own; proofs of S         -> server server
    if some of S have not: U, the parties whose words arrived                      -> all of U party k    a proof for
    each other party that it was told this U                           -> server server     the proofs of S or of U
    -> all of it party k    the pads of its shares: of b_j for j in U, of e_j for the others               -> server

The paper's parties draw a pair of keys for a Diffie-Hellman agreement and share the private one. Here the key of a pair
in a round is HMAC(key of the pair, round), which costs no exponentiation and reveals nothing about other rounds. The
server stores the shares, each under a pad from a key that its sender has with its receiver, so none has to be sent on.

A party opens shares of a round once, and for each party either b_j or e_j. With m parties that collude with the server,
both could be opened only if 2 t <= n + m. So t = floor(n/2) + 1 holds against a server that lies alone, and floor(2n/3)
+ 1 against one that lies together with fewer than n/3 parties. With both secrets a party's values would be in the
clear. Words of a vanished party that arrive later stay hidden by its own mask.

Only stage 0 of a round is recovered. Masks of evaluations use the session's keys, which are never opened: every
evaluation has the same rows, and sums over other sets would reveal what the absent party sent for all of them.

**Wrong shares.** More shares than the threshold form an error-correcting code, which names their senders. All shares of
one secret are values of one polynomial of degree below t. Of m shares, up to (m - t) / 2 wrong ones are located
(Berlekamp and Welch: Q(x) = y E(x) at every share, with E monic and zero at the wrong ones, deg Q < t + deg E); up to m
- t are noticed. A share is wrong because its owner dealt it so or its holder opened it so. A single liar is among those
named, and is named alone if it lies about two or more shares that can be located. Two parties that lie together can put
the blame for a third party's share on its owner.

Keys are shared t of n: any t shares give the secret, and t - 1 reveal nothing about it. Source: Shamir, "How to share a
secret" (1979). A polynomial of degree t - 1 over F_p takes the secret at 0, and its other coefficients are uniform;
party k's share is its value at k + 1, for k from 0. Vectors are shared entry by entry.
"""

from __future__ import annotations

import hmac
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.aggregation.field import Elements, Field, secure_elements
from colonnade.common.aggregation.integers import LARGEST, lagrange_matrix
from colonnade.common.aggregation.masks import BlindError, RoundKeys
from colonnade.common.aggregation.messages import BLOCK, SECRETS, SHARE_BYTES, OpenedShares, SealedShares
from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.raw import to_tensor

_SETS = 256  # sets of parties whose coefficients are cached


@dataclass(frozen=True)
class Sharing:
    """Parameters of a sharing: t, n, and p of the field, a prime larger than n."""

    threshold: int
    parties: int
    p: int = LARGEST

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= self.parties < self.p:
            raise InputError(
                f"no sharing among {self.parties} parties of which {self.threshold} open a secret, modulo {self.p}",
                hint="take 1 <= t <= n < p",
            )

    def share(self, secrets: Tensor, draws: Elements) -> Tensor:
        """Shares, int64 (n, ...), of secrets, int64 (...); `draws` is a source of uniform elements of this field."""
        coefficients = torch.cat([secrets.reshape(1, -1), draws((self.threshold - 1, secrets.numel()))])
        return self._field.matmul(self._powers, coefficients).view(self.parties, *secrets.shape)

    def combine(self, places: Sequence[int], shares: Tensor) -> Tensor:
        """The secrets, int64 (...), of any t shares.

        Args:
            places: the shares' parties, 0 .. n - 1, in any order.
            shares: elements (t, ...).
        """
        distinct = len(set(places)) == len(places) and set(places) <= set(range(self.parties))
        if not distinct or not len(places) == len(shares) == self.threshold:
            raise InputError(
                f"{len(shares)} shares of parties {list(places)}: expected {self.threshold} of different parties",
                hint="give each party's share once",
            )
        weights = _weights(tuple(place + 1 for place in places), (0,), self.p)
        return self._field.matmul(weights, shares.flatten(1) if shares.dim() > 1 else shares[:, None]).view(
            shares.shape[1:]
        )

    def fit(self, places: Sequence[int], shares: Tensor) -> Tensor:
        """True for each vector whose shares are all of one polynomial; any t shares are.

        Args:
            places: the shares' parties, t or more different ones.
            shares: elements (m, vectors, elements).

        Returns:
            bool (vectors,).
        """
        points, t = tuple(place + 1 for place in places), self.threshold
        if len(points) == t:
            return torch.ones(shares.shape[1], dtype=torch.bool)
        fitted = self._field.matmul(_weights(points[:t], points[t:], self.p), shares[:t].flatten(1))
        return (fitted.view_as(shares[t:]) == shares[t:]).all(-1).all(0)

    @cached_property
    def _field(self) -> Field:
        return Field(self.p)

    @cached_property
    def _powers(self) -> Tensor:
        """(k + 1)^j, int64 (n, t)."""
        points, degrees = range(1, self.parties + 1), range(self.threshold)
        return torch.tensor([[pow(point, degree, self.p) for degree in degrees] for point in points])


@lru_cache(maxsize=_SETS)
def _weights(points: tuple[int, ...], targets: tuple[int, ...], p: int) -> Tensor:
    """int64 (targets, t)."""
    return torch.tensor(lagrange_matrix(points, targets, p))


def sharing(federation: FederationConfig) -> Sharing | None:
    """How keys are shared for recovery; None without it."""
    threshold = federation.blinding.threshold(len(federation.parties))
    return Sharing(threshold, len(federation.parties)) if threshold else None


KEY_BYTES = SHARE_BYTES

_ELEMENTS = SHARE_BYTES // 4  # of a secret: 248 bits
_AHEAD = BLOCK // 2  # rounds before a block in which its shares are sent
_NONCE = bytes(16)  # every key is used for one stream
_OWN, _PAIRS = range(SECRETS)

_Octets = NDArray[np.uint8]


def first_of_block(round: int) -> int:
    return (round - 1) // BLOCK * BLOCK + 1


class SharedKeys:
    """One party's keys of double masks in a session, and the shares that it opens. One per key agreement.

    Args:
        keys: a key with every other party, the same at both ends and unknown to the server (`PairKeys.masks`).
        least: minimum parties in a sum.
    """

    def __init__(
        self, name: str, roster: Sequence[str], keys: Mapping[str, bytes], sharing: Sharing, *, least: int
    ) -> None:
        self._name, self._roster, self._place = name, tuple(roster), tuple(roster).index(name)
        self._keys = {**keys, name: os.urandom(KEY_BYTES)}  # its own: for its shares of its own secrets
        self._sharing, self._least, self._draws = sharing, max(least, sharing.threshold), secure_elements(LARGEST)
        self._own: dict[int, bytes] = {}
        self._dealt = self._opened = 0  # first round of the newest block; newest round

    def due(self, round: int) -> int | None:
        """The first round of the block that must be shared by now, None if it was."""
        first = first_of_block(round if first_of_block(round) > self._dealt else round + _AHEAD)
        return first if first > self._dealt else None

    def deal(self, first: int) -> SealedShares:
        """Shares of new secrets for the block of rounds from `first` on. Each block once, in order."""
        if first <= self._dealt or first != first_of_block(first):
            raise BlindError(f"{self._name!r} shares no keys of the rounds from {first} on again")
        self._dealt = first
        secrets = self._draws((BLOCK, SECRETS, _ELEMENTS))
        octets = _octets(self._sharing.share(secrets, self._draws)).transpose(1, 2, 0, 3)  # (rounds, 2, parties, 32)
        rounds = range(first, first + BLOCK)
        sealed = octets ^ _rows([self._pad(self._name, to, t, s) for t in rounds for s in range(SECRETS)
                                 for to in self._roster]).reshape(octets.shape)  # fmt: skip
        keys = [derived_key(secret) for secret in secrets.view(-1, _ELEMENTS)]
        self._own = {t: key for t, key in self._own.items() if t >= first - BLOCK}
        self._own |= dict(zip(rounds, keys[_OWN::SECRETS], strict=True))
        wrapped = [wrapped_keys(key, self._pair_keys(t)) for t, key in zip(rounds, keys[_PAIRS::SECRETS], strict=True)]
        return SealedShares(first, torch.from_numpy(sealed), torch.from_numpy(np.stack(wrapped)))

    def of_round(self, round: int) -> RoundKeys:
        if round not in self._own:
            raise BlindError(f"{self._name!r} has shared no keys of round {round}")
        others = (party for party in self._roster if party != self._name)
        return RoundKeys(self._own[round], {party: self._pair_key(party, round) for party in others})

    def open(self, round: int, laid: Collection[str], summed: Collection[str]) -> OpenedShares:
        """The pads of our shares: of b for the parties in `summed`, of e for those in `laid` alone. Once a round.

        Args:
            laid: over whom the words were masked.
            summed: whose words arrived, as all of them have confirmed.

        Raises BlindError for a round not after the newest opened, and for a sum over too few parties, over parties
        outside `laid`, or without us.
        """
        wrong = self._objection(round, set(laid), set(summed))
        if wrong:
            raise BlindError(
                f"{self._name!r} opens no shares of round {round}: {wrong}",
                hint="with both shares of a party its values are in the clear: the server is not honest",
            )
        self._opened = round
        pads = [
            self._pad(party, self._name, round, _OWN if party in summed else _PAIRS)
            if party in laid
            else bytes(SHARE_BYTES)
            for party in self._roster
        ]
        return OpenedShares(round, to_tensor(b"".join(pads)).view(len(pads), SHARE_BYTES))

    def _objection(self, round: int, laid: set[str], summed: set[str]) -> str:
        if round <= self._opened:
            return f"it has opened those of round {self._opened}"
        if self._name not in summed or not summed <= laid:
            return "its words are not masked over that set"
        if len(summed) < self._least:
            return f"the sum is of {len(summed)} parties, at least {self._least} are needed"
        return ""

    def _pad(self, owner: str, holder: str, round: int, secret: int) -> bytes:
        """Hides the holder's share of an owner's secret; this party is one of the two."""
        key = self._keys[holder if owner == self._name else owner]
        ends = f"{self._roster.index(owner)} {self._roster.index(holder)}"
        return hmac.digest(key, f"share {ends} {round} {secret}".encode(), "sha256")

    def _pair_key(self, party: str, round: int) -> bytes:
        return hmac.digest(self._keys[party], f"round {round}".encode(), "sha256")

    def _pair_keys(self, round: int) -> _Octets:
        keys = [bytes(KEY_BYTES) if party == self._name else self._pair_key(party, round) for party in self._roster]
        return _rows(keys)


@dataclass(frozen=True)
class Recovered:
    """Keys of the masks that do not cancel in a sum.

    Args:
        own: keys of the own masks of parties whose words arrived.
        pairs: keys by (arrived, vanished) party.
        unchecked: who opened the shares, if exactly t did: t shares always fit together, so they cannot be checked.
    """

    own: dict[str, bytes]
    pairs: dict[tuple[str, str], bytes]
    unchecked: tuple[str, ...] = ()


def recover(
    roster: Sequence[str],
    sharing: Sharing,
    dealt: Mapping[str, SealedShares],
    opened: Mapping[str, OpenedShares],
    laid: Collection[str],
    summed: Collection[str],
) -> Recovered:
    """The keys that t parties have opened, server side.

    Args:
        dealt: the round's shares, of all parties in `laid`.
        opened: openings of at least t parties, all of one round.
        laid: over whom the words were masked.
        summed: whose words arrived.

    Raises ContractError if shares do not fit together; names the parties that can be the cause.
    """
    holders, t = list(opened), sharing.threshold
    places = [roster.index(party) for party in holders]
    round = opened[holders[0]].round
    at = round - first_of_block(round)
    pads = torch.stack([opened[party].pads for party in holders]).numpy()  # (m, parties, 32)
    owners = [party for party in roster if party in laid]
    which = {party: _OWN if party in summed else _PAIRS for party in owners}
    sealed = np.stack([dealt[party].shares[at, which[party]].numpy()[places] for party in owners], axis=1)
    shares = elements_of(sealed ^ pads[:, [roster.index(party) for party in owners]])  # (m, owners, elements)
    check_shares(sharing, dict(zip(holders, places, strict=True)), owners, shares)
    secrets = dict(zip(owners, sharing.combine(places[:t], shares[:t]), strict=True))
    pairs: dict[tuple[str, str], bytes] = {}
    for gone in (party for party in owners if party not in summed):
        keys = wrapped_keys(derived_key(secrets[gone]), dealt[gone].pair_keys[at].numpy())
        pairs |= {(there, gone): keys[roster.index(there)].tobytes() for there in owners if there in summed}
    own = {party: derived_key(secrets[party]) for party in owners if party in summed}
    return Recovered(own, pairs, tuple(holders) if len(holders) == t else ())


def derived_key(secret: Tensor) -> bytes:
    return sha256(_octets(secret).tobytes()).digest()


def _octets(elements: Tensor) -> _Octets:
    """Elements below 2^31, int64 (..., n), as little-endian uint8 (..., 4 n)."""
    return elements.numpy().astype("<u4").view(np.uint8)


def elements_of(octets: _Octets) -> Tensor:
    """The reverse of `_octets`, modulo p: a share altered to p or more fits no others, or spoils the sum."""
    return torch.from_numpy(np.ascontiguousarray(octets).view("<u4").astype(np.int64) % LARGEST)


def _rows(pieces: Sequence[bytes]) -> _Octets:
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(len(pieces), -1)


def wrapped_keys(key: bytes, keys: _Octets) -> _Octets:
    """Encrypts or decrypts keys, (parties, 32), by a keystream."""
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor().update(bytes(keys.size))
    return keys ^ np.frombuffer(stream, np.uint8).reshape(keys.shape)


_Elements = NDArray[np.int64]


def check_shares(sharing: Sharing, places: Mapping[str, int], owners: Sequence[str], shares: Tensor) -> None:
    """Refuses shares that no polynomial explains, and names the parties that can be the cause.

    Args:
        places: the holders' places, 0 .. n - 1.
        owners: the secrets' owners.
        shares: elements, int64 (holders, owners, elements). Exactly t shares of a secret always fit together.
    """
    fits = sharing.fit(list(places.values()), shares)
    if bool(fits.all()):
        return
    holders, draws = tuple(places), secure_elements(sharing.p)
    points = [place + 1 for place in places.values()]
    wrong: dict[str, Collection[str] | None] = {}
    for number, owner in enumerate(owners):
        if not fits[number]:  # a random combination of all elements misses an error with probability 1/p
            mixed = (shares[:, number] * draws((shares.shape[-1],)) % sharing.p).sum(-1) % sharing.p
            found = _outliers(points, mixed.numpy(), sharing)
            wrong[owner] = None if found is None else {holders[place] for place in found}
    expected = f"shares that fit to those of others, of the keys of {', '.join(wrong)}"
    raise ContractError(_suspects(wrong, holders, sharing), "OpenedShares", "pads", expected, "others")


def _suspects(wrong: Mapping[str, Collection[str] | None], holders: Collection[str], sharing: Sharing) -> str:
    """Parties that can be the cause. `wrong`: owner -> holders of wrong shares; None if they cannot be located."""
    near = set(holders) if len(holders) == sharing.threshold + 1 else set[str]()  # any share may be the wrong one
    alone = [
        {owner} | (near if found is None else set(found) if len(found) == 1 else set())
        for owner, found in wrong.items()
    ]
    if common := set[str].intersection(*alone):
        return ", ".join(sorted(common)) if len(common) == 1 else f"one of {', '.join(sorted(common))}"
    if any(found is None for found in wrong.values()):
        return f"several of {', '.join(sorted({*holders, *wrong}))}"
    return ", ".join(sorted(_cover({(owner, holder) for owner, found in wrong.items() for holder in found or ()})))


def _cover(pairs: set[tuple[str, str]]) -> set[str]:
    """A set of parties that touches every pair, chosen greedily by number of pairs."""
    cover: set[str] = set()
    while pairs:
        counts = Counter(party for pair in pairs for party in set(pair))
        most = max(counts.values())
        cover |= {party for party, count in counts.items() if count == most}
        pairs = {pair for pair in pairs if not cover & set(pair)}
    return cover


def _outliers(points: Sequence[int], values: _Elements, sharing: Sharing) -> list[int] | None:
    """Indices of wrong values, at most (m - t) / 2; None if there are more."""
    p, t = sharing.p, sharing.threshold
    errors = (len(points) - t) // 2
    powers = np.array([[pow(point, degree, p) for degree in range(t + errors)] for point in points])
    locator = values[:, None] * powers[:, : errors + 1] % p  # y E(x): its last column is that of the monic term
    solved = _solved(np.concatenate([powers, -locator[:, :errors], locator[:, errors:]], axis=1), p)
    if solved is None:
        return None
    at = (powers[:, :errors] * solved[t + errors :] % p).sum(axis=1) + powers[:, errors]
    right = np.flatnonzero(at % p)[:t]
    weights = np.array(lagrange_matrix([points[place] for place in right], points, p))
    fitted = (weights * values[right] % p).sum(axis=1) % p
    wrong = [int(place) for place in np.flatnonzero(fitted != values)]
    return wrong if len(wrong) <= errors else None


def _solved(system: _Elements, p: int) -> _Elements | None:
    """A solution of linear equations modulo p, each a row of coefficients and its value; None if there is none."""
    rows, pivots = system % p, list[int]()
    for column in range(rows.shape[1] - 1):
        top = len(pivots)
        candidates = np.flatnonzero(rows[top:, column])
        if not candidates.size:
            continue
        rows[[top, top + candidates[0]]] = rows[[top + candidates[0], top]]
        rows[top] = rows[top] * pow(int(rows[top, column]), -1, p) % p
        factors = rows[:, column].copy()
        factors[top] = 0
        rows = (rows - factors[:, None] * rows[top]) % p
        pivots.append(column)
    if rows[len(pivots) :, -1].any():
        return None
    solution = np.zeros(rows.shape[1] - 1, np.int64)
    solution[pivots] = rows[: len(pivots), -1]
    return solution
