"""Masks that cancel in the sum over a set of parties and hide every summand.

Source: Wang et al., "VFedMH" (2023), Section 4.3: a party adds r_k = Σ_j (-1)^{k>j} H(CK_kj) (Eq. 4) to its embedding
(Eq. 5), so that the server learns the sum over all parties (Eq. 6) and no embedding.

The paper's r_k is one number for every entry of every round: the differences of any two entries are then in the clear.
This implementation keeps the signs and the pairs of Eq. 4 and changes the summands:

- every entry of every round has a mask of its own, words of a ChaCha20 keystream. Its key is derived (HMAC-SHA256) from
  the pair's key CK_kj and the message's context: round, stage, set of parties, shape, width, and the hash of what is
  summed, which each party computes itself (common/aggregation/subject.py);
- sums are of integers modulo 2^32 or 2^64 (common/aggregation/fixed_point.py), where a uniform mask hides any number.
  A real mask would have to be large, and would leave rounding errors;
- two messages of one round over different sets of parties would reveal an embedding by their difference, so there is
  never more than one: rounds, and stages in them, only increase in a session, whatever the server names;
- parties that were asked for different rows have masks that do not cancel, so that the sum is noise.

The server learns the sum over the set. With the keys of some of its parties it learns the sum over the others, so a set
needs at least two more parties than may collude with the server.

**Double masks** (Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", 2017, Section
4). Where a sum is to survive a party that vanishes, the pairs' masks are made from keys of the round, and every party
adds a mask of its own. `remove_masks` removes what is left in the sum over those whose values arrived: their own masks,
and the masks that they have with the others. common/aggregation/recovery.py has the keys.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.errors import InputError, PeerError
from colonnade.common.messaging.outgoing import MaskedTensor

LEAST = 2  # with fewer parties the sum is an embedding

_Words = NDArray[np.uint32] | NDArray[np.uint64]

_UNSIGNED = {torch.int32: np.uint32, torch.int64: np.uint64}  # numpy defines their overflow
_ZEROS = bytes(2**17)  # per step: keystream and sums stay in the cache
_NONCE = bytes(16)  # every key is used for one stream only


class BlindError(PeerError):
    """Blinding would not hide the values."""

    telling = None  # names of parties and a round


@dataclass(frozen=True)
class RoundKeys:
    """Keys of a party's double masks in one round: of its own mask, and of each pair (the same at both ends)."""

    own: bytes
    pairs: Mapping[str, bytes]


class Blinder:
    """Blinds one party's messages of a session. One per key agreement: it records the newest round and stage.

    Args:
        keys: CK_kj by party, for every other party (`PairKeys.masks`).
        least: minimum parties in a sum; LEAST or more.
    """

    def __init__(self, name: str, roster: Sequence[str], keys: Mapping[str, bytes], *, least: int) -> None:
        self._name, self._roster, self._keys, self._least = name, tuple(roster), keys, least
        self._newest = (-1, -1)  # round and stage
        lacking = [party for party in self._roster if party != name and party not in keys]
        if name not in self._roster or lacking:
            what = f"no key for {lacking[0]!r}" if lacking else "no place in the roster"
            raise InputError(f"{name!r} cannot blind: it has {what}", hint="agree on keys with all of the roster")
        if least < LEAST:
            raise InputError(f"{name!r} would blind for {least} parties, which hides nothing", hint=f"take {LEAST}")

    def blind(
        self,
        words: Tensor,
        round: int,
        stage: int,
        parties: Collection[str],
        about: bytes,
        keys: RoundKeys | None = None,
    ) -> MaskedTensor:
        """[E_k] = E_k + r_k (Eq. 5), once per round and stage, in ascending order.

        Args:
            words: encoded, of any shape, int32 for words modulo 2^32 or int64 for 2^64, on the CPU.
            parties: the agreed set whose words are summed.
            about: hash of what the sum is over, as this party was asked for it.
            keys: for double masks; None for masks of the session's keys alone.

        Returns:
            A new tensor of that shape and dtype, uniform to any observer without one of the pair keys in the set.

        Raises BlindError if this or a later round and stage was blinded before, for any set; or the set is too small,
        lacks this party, or includes an unknown one.
        """
        if words.dtype not in _UNSIGNED:
            raise InputError(f"{self._name!r} blinds words of {words.dtype}", hint="encode them as int32 or int64")
        chosen = self._agreed(round, stage, set(parties))
        blinded = np.array(words.numpy(), order="C").view(_UNSIGNED[words.dtype])
        self._add_masks(blinded.reshape(-1), chosen, _context(round, stage, chosen, blinded, about), keys)
        said = f"blinded, a sum of {len(chosen)}"
        return MaskedTensor(torch.from_numpy(blinded.view(words.numpy().dtype)), said, summed=True)

    def _agreed(self, round: int, stage: int, parties: set[str]) -> tuple[str, ...]:
        """The set in the roster's order; marks the round and stage as used."""
        wrong = self._objection(round, stage, parties)
        if wrong:
            raise BlindError(
                f"{self._name!r} does not blind round {round}, stage {stage}: {wrong}",
                hint="what it sent could be told from the sums: begin another round, with enough parties",
            )
        self._newest = (round, stage)
        return tuple(party for party in self._roster if party in parties)

    def _objection(self, round: int, stage: int, parties: set[str]) -> str:
        if (round, stage) == self._newest:
            return "it has done so before"
        if (round, stage) < self._newest:
            return f"it has blinded round {self._newest[0]}, stage {self._newest[1]} since"
        if self._name not in parties:
            return "it is not among the parties that are summed"
        if strangers := sorted(parties - set(self._roster)):
            return f"{strangers[0]!r} is not in the roster"
        if len(parties) < self._least:
            return f"the sum is of {len(parties)} parties, at least {self._least} are needed"
        return ""

    def _add_masks(self, words: _Words, parties: Sequence[str], message: bytes, keys: RoundKeys | None) -> None:
        """Adds r_k (Eq. 4) in place: plus if this party is earlier in the roster than the other, minus if later."""
        pairs, place = self._keys if keys is None else keys.pairs, parties.index(self._name)
        for other, party in enumerate(parties):
            if other != place:
                _add_stream(words, pairs[party], message, np.add if place < other else np.subtract)
        if keys is not None:
            _add_stream(words, keys.own, message, np.add)


def remove_masks(
    total: Tensor,
    round: int,
    stage: int,
    parties: Sequence[str],
    own: Mapping[str, bytes],
    pairs: Mapping[tuple[str, str], bytes],
    *,
    about: bytes,
) -> Tensor:
    """A sum of doubly masked words without the masks that do not cancel in it.

    Args:
        total: the sum modulo 2^32 or 2^64 over those whose words arrived, int32 or int64.
        parties: the agreed set over which they were masked, in the roster's order.
        own: keys of the own masks of those whose words arrived.
        pairs: keys of pairs (arrived, vanished).
        about: hash of what the sum is over.
    """
    words = np.array(total.numpy(), order="C").view(_UNSIGNED[total.dtype])
    flat, message = words.reshape(-1), _context(round, stage, parties, words, about)
    for key in own.values():
        _add_stream(flat, key, message, np.subtract)
    for (one, other), key in pairs.items():
        earlier = parties.index(one) < parties.index(other)
        _add_stream(flat, key, message, np.subtract if earlier else np.add)
    return torch.from_numpy(words.view(total.numpy().dtype))


def _context(round: int, stage: int, parties: Sequence[str], words: _Words, about: bytes) -> bytes:
    message = [round, stage, tuple(parties), words.shape, 8 * words.itemsize, about.hex()]
    return sha256(json.dumps(message).encode()).digest()


def _add_stream(words: _Words, key: bytes, message: bytes, combine: np.ufunc) -> None:
    stream = Cipher(ChaCha20(hmac.digest(key, message, "sha256"), _NONCE), mode=None).encryptor()
    buffer = np.empty(len(_ZEROS) // words.itemsize, words.dtype.newbyteorder("<"))  # equal on every machine
    for begin in range(0, len(words), len(buffer)):
        some = words[begin : begin + len(buffer)]
        mask = buffer[: len(some)]
        stream.update_into(memoryview(_ZEROS)[: mask.nbytes], mask.view(np.uint8).data)
        combine(some, mask, out=some)
