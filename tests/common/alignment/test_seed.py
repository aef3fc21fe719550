"""A seed gives the same randomness until the alignment is settled, and different randomness afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import Seed, about
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.errors import EnvironmentFault


@pytest.mark.parametrize("kept", [True, False], ids=["disk", "memory"])
def test_it_draws_alike_until_it_is_forgotten(tmp_path: Path, kept: bool) -> None:
    path = tmp_path / "once" / "seed" if kept else None
    seed = Seed(path)
    draw = seed.draw(b"x")
    first = [draw(32), draw(100)]
    assert first[0] != first[1][:32]
    draw = (Seed(path) if kept else seed).draw(b"x")
    assert [draw(32), draw(100)] == first
    assert seed.draw(b"y")(32) != first[0]
    seed.forget()
    assert path is None or not path.exists()
    assert seed.draw(b"x")(32) != first[0]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    Seed(tmp_path / "seed").draw(b"x")
    assert (tmp_path / "seed").stat().st_mode & 0o777 == 0o600


def test_a_seed_that_was_cut_short_is_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "seed").write_bytes(b"short")
    assert Seed(tmp_path / "seed").draw(b"x")(8) == Seed(tmp_path / "seed").draw(b"x")(8)
    assert len((tmp_path / "seed").read_bytes()) == 32


def test_a_seed_that_the_disk_does_not_take_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        Seed(tmp_path / "file" / "seed").draw(b"x")


def test_other_sizes_keys_or_runs_have_other_secrets() -> None:
    seed, keys = Seed(), RowKeys((b"a", b"b"))
    variants = [
        about(b"tag", PsiRing((2, 2), 5), keys),
        about(b"tag", PsiRing((2, 3), 5), keys),
        about(b"tag", PsiRing((2, 2), 5), RowKeys((b"b", b"a"))),
        about(b"gat", PsiRing((2, 2), 5), keys),
    ]
    assert len({seed.draw(variant)(32) for variant in variants}) == len(variants)
