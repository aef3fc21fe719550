"""A server that asks for more keys than a party allows, a few at a time, by repeated alignments.

Bounds: alignment (server).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.config.members import Config
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import CheckpointError, ConfigError, PeerError
from colonnade.common.parsing.file import parse
from colonnade.server.alignment.relay import Aligning
from colonnade.server.alignment.reuse import ServerReuse
from tests.support.lying_server import Liar, lying
from tests.support.tables import table_tree, write_tables

pytestmark = pytest.mark.real_time

MOST = 10
RUN = "run1"


class Enough(Exception):
    """The server has its result, and does not settle the alignment."""


def agreed(
    folder: Path, parties: int = 1, persons: int = 24, most: int = MOST, **more: Any
) -> tuple[Config, list[str]]:
    """A federation whose first party allows so many keys of any other member; and the keys in that party's table."""
    ids = write_tables(folder, parties, persons, share=0.5)
    tree = table_tree(parties, timeouts={"answer": 20, "away": 20}, **more)
    tree["parties"]["party1"]["policy"] = {"max_other_rows": most}
    return parse(tree), ids["party1"]


async def ask(there: Liar, guesses: Sequence[str], seed: Seed | None = None, *, settled: bool = False) -> list[str]:
    """Aligns the parties' rows with guessed keys, and returns those that all have.

    Raises:
        PeerError: a party refuses it.
    """
    cohort, found = await there.begin(RUN), list[str]()
    federation = there.config.federation

    def keep(_number: str, rows: Tensor) -> None:
        found.extend(guesses[row] for row in rows.tolist())
        if not settled:
            raise Enough

    session = Session(federation.id, RUN, there.hub.session, there.hashes)
    keys = RowKeys(tuple(guess.encode() for guess in guesses))
    after = (await ServerReuse(federation, cohort)()).round
    aligning = Aligning(federation, keys, session, cohort, keep, seed=seed or Seed(), after=after)
    if settled:
        await aligning()
    else:
        with suppress(Enough):
            await aligning()
        there.hub.rewind("again")
    return found


async def again(there: Liar, restarted: bool) -> None:
    if restarted:
        await there.stop()
        there.start()


def guessed(known: Collection[str], count: int, of: int) -> list[list[str]]:
    """Lists of guesses, each with one key that the party has."""
    return [[key, *(f"nobody {number}.{n}" for n in range(of - 1))] for number, key in enumerate(list(known)[:count])]


@pytest.mark.parametrize("restarted", [False, True], ids=["rewound", "restarted"])
@pytest.mark.parametrize(("of", "answered"), [(MOST, 1), (4, 2), (3, 3)])
async def test_a_dictionary_is_bounded_over_all_attempts(
    tmp_path: Path, of: int, answered: int, restarted: bool
) -> None:
    config, known = agreed(tmp_path)
    async with lying(config, tmp_path) as there:
        there.start()
        lists = guessed(known, 6, of)
        named = []
        with pytest.raises(PeerError, match="max_other_rows = 10"):
            for guesses in lists:
                named += await ask(there, guesses)
                await again(there, restarted)
        assert named == known[:answered]
        (error,) = (await there.errors()).values()
        assert isinstance(error, ConfigError)
        assert f"{(answered + 1) * of} keys at server, in {answered + 1} lists that differ" in str(error)
        assert len(there.warnings("party1")) == answered  # every restart, also the one that is refused


async def test_another_list_of_the_same_length_is_no_repeat(tmp_path: Path) -> None:
    config, known = agreed(tmp_path)
    seed = Seed()
    async with lying(config, tmp_path) as there:
        there.start()
        one, other = guessed(known, 2, MOST)
        for _ in range(3):
            assert await ask(there, one, seed) == known[:1]
        with pytest.raises(PeerError, match="max_other_rows = 10"):
            await ask(there, other, seed)
        warnings = there.warnings("party1")
        assert [f"attempt {n}" in warning for n, warning in enumerate(warnings, 2)] == [True] * 3


@pytest.mark.parametrize("restarted", [False, True], ids=["rewound", "restarted"])
async def test_an_honest_run_that_is_interrupted_is_repeated_at_no_cost(tmp_path: Path, restarted: bool) -> None:
    """Three parties and a policy that allows exactly their lists, once."""

    config, _ = agreed(tmp_path, parties=3, persons=16, most=8)
    seed = Seed(tmp_path / "alignment.seed")
    own = [f"Person {n:04}" for n in range(8)]
    async with lying(config, tmp_path) as there:
        there.start()
        first = await ask(there, own, seed)
        await again(there, restarted)
        assert first and await ask(there, own, Seed(tmp_path / "alignment.seed")) == first
        await again(there, restarted)
        assert await ask(there, own, seed, settled=True) == first
        assert not (tmp_path / "alignment.seed").exists()


async def test_rows_that_are_aligned_are_not_aligned_again(tmp_path: Path) -> None:
    config, known = agreed(tmp_path, batch=4)
    async with lying(config, tmp_path) as there:
        there.start()
        assert sorted(await ask(there, known[:MOST], settled=True)) == sorted(known[:MOST])
        await there.event("aligned")
        await there.stop()
        there.start()
        with pytest.raises(PeerError):
            await ask(there, known[:MOST])
        (error,) = (await there.errors()).values()
        assert isinstance(error, CheckpointError) and "another --out" in error.hint
        assert "rows are aligned, and the server wants to align them again" in str(error)
