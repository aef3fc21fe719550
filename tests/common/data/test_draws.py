"""A member's own random numbers follow from its whole secret, and from nothing else."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.run.member import prepare_torch
from colonnade.common.data.draws import AgreedDraws, SecretDraws, filled

SECRET = bytes(range(32))


def state(secret: bytes = SECRET, member: str = "ada", *purpose: str | int) -> bytes:
    draws = SecretDraws(secret, member).generator(*(purpose or ("model",)))  # type: ignore[arg-type]
    return draws.get_state().numpy().tobytes()


def words(generator: torch.Generator) -> bytes:
    """The words of the state, 4 bytes each."""
    return generator.get_state()[24 : 24 + 4992].view(-1, 8)[:, :4].numpy().tobytes()


def test_a_filled_generator_draws_what_torch_draws_from_this_state() -> None:
    seeded = torch.Generator().manual_seed(7)
    ours = filled(words(seeded) + bytes(8))
    for draw in (torch.rand, torch.randn):
        assert torch.equal(draw(2000, generator=ours), draw(2000, generator=seeded))
    assert torch.equal(torch.randperm(999, generator=ours), torch.randperm(999, generator=seeded))


def test_the_whole_state_is_an_expansion_of_the_secret() -> None:
    expanded = hashlib.shake_256(b"colonnade: a member's own draws, 1\n" + SECRET + b"('ada', 'model')").digest(2496)
    assert words(SecretDraws(SECRET, "ada").generator("model")) == expanded


@given(st.binary(min_size=32, max_size=32), st.integers(0, 255))
def test_every_bit_of_a_secret_counts(secret: bytes, bit: int) -> None:
    other = bytearray(secret)
    other[bit // 8] ^= 1 << bit % 8
    ours, theirs = (
        words(SecretDraws(secret, "ada").generator("model")),
        words(SecretDraws(bytes(other), "ada").generator("model")),
    )
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    assert same < 60  # of 2496 bytes, ten are equal by chance


def test_the_seed_that_torch_reports_is_secret_too() -> None:
    """A model of one's own may seed NumPy with `torch.initial_seed()`, as loaders of data do."""
    with torch.random.fork_rng(devices=[]):
        seeds = set()
        for purpose in ("model", "head", "random"):
            torch.default_generator.set_state(SecretDraws(SECRET, "ada").generator(purpose).get_state())
            seeds.add(torch.initial_seed())
    assert len(seeds) == 3 and all(seed.bit_length() > 32 for seed in seeds)


def test_a_process_does_not_begin_with_torch_s_constant() -> None:
    with torch.random.fork_rng(devices=[]):
        drawn = {torch.get_rng_state().numpy().tobytes()}
        for _ in range(2):
            prepare_torch(0)
            drawn.add(torch.get_rng_state().numpy().tobytes())
    assert len(drawn) == 3


def test_no_search_of_torch_s_seeds_finds_a_state() -> None:
    """The state after `manual_seed` follows from its first word, which is the seed."""
    mine = SecretDraws.fresh("ada").generator("model")
    first = int.from_bytes(words(mine)[:4], "little")
    assert words(torch.Generator().manual_seed(first))[:4] == words(mine)[:4]
    assert words(torch.Generator().manual_seed(first)) != words(mine)
    assert words(torch.Generator().manual_seed(7)) == words(torch.Generator().manual_seed(7 + 2**32))


def test_members_purposes_and_parts_differ() -> None:
    draws = SecretDraws(SECRET, "ada")
    states = [
        state(), state(member="bob"), state(SECRET[::-1]), state(SECRET, "ada", "head"),
        state(SECRET, "ada", "head", 0), state(SECRET, "ada", "head", "0"), state(SECRET, "ada", "head", 1),
    ]  # fmt: skip
    assert len(set(states)) == len(states)
    assert [words(each) for each in draws.each("head", 2)] == [words(draws.generator("head", n)) for n in (0, 1)]
    numbers = {SecretDraws(SECRET, member).number(purpose) for member in ("ada", "bob") for purpose in ("random", "x")}
    assert len(numbers) == 4 and max(numbers) > 2**50
    assert draws.number("random") == SecretDraws(SECRET, "ada").number("random")


def test_a_secret_has_32_bytes() -> None:
    for size in (0, 4, 31, 33):
        with pytest.raises(ValueError, match="bytes"):
            SecretDraws(bytes(size), "ada")
    assert len({words(SecretDraws.fresh("ada").generator("model")) for _ in range(3)}) == 3


def test_agreed_draws_are_those_of_0_2_0() -> None:
    names = ["ada", "bob"]
    of = {member: AgreedDraws(3, names, member) for member in (*names, "server")}
    for member, purpose, seed in (
        ("ada", "model", 3 * 1009 + 1), ("bob", "head", 3 * 1009 + 2), ("server", "head", 3 * 1009),
        ("server", "active model", 3 * 1009 + 3),
        ("server", "random", int.from_bytes(hashlib.sha256(b"3/server").digest()[:7])),
    ):  # fmt: skip
        assert words(of[member].generator(purpose)) == words(torch.Generator().manual_seed(seed))
    blake = int.from_bytes(hashlib.blake2b(b"('dropout', 3, 'bob')", digest_size=8).digest())
    assert words(of["bob"].generator("dropout")) == words(torch.Generator().manual_seed(blake))
    one, other = of["server"].each("head", 2)
    assert one is other
    assert all(draws.public for draws in of.values()) and not SecretDraws.fresh("ada").public
