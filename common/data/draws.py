"""A member's own random numbers: first weights, dropout, directions, rounding. Noise and keys come from elsewhere.

No other member may be able to predict a member's own draws: with a party's first weights, its first embeddings are a
known function of its columns, which can be solved for. So a member draws 32 bytes from the operating system once in a
run (common/run/start_secret.py) and expands them here. Torch's own seeding uses 32 bits of a seed, which can be
searched: a generator's whole state is filled instead.

Draws from the agreed seed, which all members know, are for papers' runs and where one process holds all data anyway.

Torch's own generators, which modules draw dropout and the like from, are saved in every checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from colonnade.common.config.federation import FederationConfig
from colonnade.common.data.rows import generator
from colonnade.common.run.state import State

SECRET_BYTES = 32

_LABEL = b"colonnade: a member's own draws, 1\n"
_WORDS = 624  # of the state of an MT19937

# The state of a CPU generator as `get_state` returns it: a head of 24 bytes (that it is seeded, and that all its words
# have been used), the words, 8 bytes each of which 4 are used, and normal numbers drawn in advance, of which there are
# none. The seed in the head is what `initial_seed` reports: a user's model may seed generators of its own with it.
_SEED = slice(0, 8)
_BODY = slice(24, 24 + 8 * _WORDS)
_EMPTY = torch.Generator().manual_seed(0).get_state().numpy()
_EMPTY[_BODY] = 0


class Draws(Protocol):
    """Random numbers of one member, by purpose."""

    @property
    def public(self) -> bool:
        """True if all members can draw them again."""

    def generator(self, purpose: str, *about: str | int) -> torch.Generator:
        """A new CPU generator, the same at every call with equal arguments."""

    def each(self, purpose: str, count: int) -> list[torch.Generator]:
        """Generators of `count` equal parts, to be used in this order and each once."""

    def number(self, purpose: str) -> int:
        """A seed below 2^64, for generators with no larger state, such as GPUs'."""


class SecretDraws:
    """Draws that follow from the member's own secret; draws for different purposes are independent.

    Args:
        secret: 32 bytes of the operating system's randomness, of this member and run alone.
    """

    public = False

    def __init__(self, secret: bytes, member: str) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret of {len(secret)} bytes")
        self._secret, self._member = secret, member

    @classmethod
    def fresh(cls, member: str = "") -> SecretDraws:
        """Draws that cannot be repeated."""
        return cls(os.urandom(SECRET_BYTES), member)

    def generator(self, purpose: str, *about: str | int) -> torch.Generator:
        return filled(self._expanded(4 * _WORDS + 8, purpose, *about))

    def each(self, purpose: str, count: int) -> list[torch.Generator]:
        """An independent generator per part: one part's generator reveals nothing about the others."""
        return [self.generator(purpose, number) for number in range(count)]

    def number(self, purpose: str) -> int:
        return int.from_bytes(self._expanded(8, purpose))

    def _expanded(self, size: int, *purpose: str | int) -> bytes:
        said = repr((self._member, *purpose)).encode()
        return hashlib.shake_256(_LABEL + self._secret + said).digest(size)


class AgreedDraws:
    """Draws that follow from the agreed seed, as in version 0.2.0: every member can repeat them."""

    public = True

    def __init__(self, seed: int, names: Sequence[str], member: str) -> None:
        self._seed, self._member = seed, member
        first = names.index(member) + 1 if member in names else 0
        self._places = {"model": first, "head": first, "active model": len(names) + 1}

    def generator(self, purpose: str, *about: str | int) -> torch.Generator:
        if not about and purpose in self._places:  # equal models must not start equal
            return torch.Generator().manual_seed(self._seed * 1009 + self._places[purpose])
        if purpose == "random":
            return torch.Generator().manual_seed(self.number(purpose))
        return generator(purpose, self._seed, *(about or (self._member,)))

    def each(self, purpose: str, count: int) -> list[torch.Generator]:
        """One generator for all parts, which draw from it in turn."""
        return [self.generator(purpose)] * count

    def number(self, purpose: str) -> int:  # noqa: ARG002  # one for all
        """A seed below 2^56."""
        return int.from_bytes(hashlib.sha256(f"{self._seed}/{self._member}".encode()).digest()[:7])


def reseed_torch() -> None:
    """Seeds torch's own generators from the system: they begin with a constant, and a package's source may draw."""
    torch.manual_seed(int.from_bytes(os.urandom(8)))  # of GPUs; the CPU's takes 32 bits of it
    torch.default_generator.set_state(SecretDraws.fresh().generator("process").get_state())


def reseed(threads: int) -> None:
    """Seeds all generators of a forked process, which has those of its parent, and sets torch's threads."""
    torch.set_num_threads(threads)
    reseed_torch()
    np.random.seed(np.frombuffer(os.urandom(2496), np.uint32))  # the global generator, which libraries use
    random.seed()


def filled(words: bytes) -> torch.Generator:
    """A CPU generator whose whole state is given: 2496 bytes, and 8 for the seed that it reports."""
    state = _EMPTY.copy()
    words, seed = words[: 4 * _WORDS], words[4 * _WORDS :]
    state[_BODY].view("<u8")[:] = np.frombuffer(words, "<u4")
    state[_SEED] = np.frombuffer(seed, "u1")
    made = torch.Generator()
    made.set_state(torch.from_numpy(state))
    return made


def own_draws(federation: FederationConfig, member: str, secret: bytes | None = None) -> Draws:
    """A member's own draws; `secret` is None where its start is public, or one process holds all members' data."""
    if secret is None:
        return AgreedDraws(federation.seed, federation.names, member)
    return SecretDraws(secret, member)


def keep_generators(state: State, device: torch.device, draws: Draws) -> None:
    """Registers torch's generators, of the CPU and the member's GPU (seeded with 64 bits), in its state."""
    state.keep("random", lambda: _begun(draws.generator("random")))
    if device.type == "cuda":
        state.keep("random on the device", lambda: _begun_there(device, draws.number("random")))


def _begun(draws: torch.Generator) -> torch.Generator:
    torch.default_generator.set_state(draws.get_state())
    return torch.default_generator


def _begun_there(device: torch.device, seed: int) -> torch.Generator:
    torch.cuda.init()  # type: ignore[no-untyped-call]  # before it there is no generator to seed
    torch.cuda.manual_seed_all(seed)
    return torch.cuda.default_generators[device.index]
