"""Tokens and rates."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from colonnade.common.errors import DataError, IdentityError
from colonnade.server.prediction.serving.tokens import Bucket, Tokens, TooMany, Unknown


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_refills_with_its_rate() -> None:
    clock = Clock()
    bucket = Bucket(10, clock)
    bucket.take(10)
    with pytest.raises(TooMany) as refused:
        bucket.take(5)
    assert refused.value.wait == pytest.approx(0.5)
    clock.now += 0.5
    bucket.take(5)
    clock.now += 1000
    bucket.take(10)
    with pytest.raises(TooMany):
        bucket.take(1)


def test_a_question_larger_than_a_bucket_passes_when_it_is_full_and_is_waited_for_afterwards() -> None:
    clock = Clock()
    bucket = Bucket(10, clock)
    bucket.take(40)
    clock.now += 3
    with pytest.raises(TooMany):
        bucket.take(1)
    clock.now += 0.2
    bucket.take(1)


def test_a_token_is_made_for_its_owner_alone_and_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    callers = Tokens.read(path, 10)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    name, token = path.read_text().split()
    assert callers.admit(f"Bearer {token}", 1) == name
    assert Tokens.read(path, 10).admit(f"bearer {token}", 1) == name


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer ", "Bearer other", "Basic secret", "secret"])
def test_callers_without_a_token_are_not_admitted(shown: str) -> None:
    with pytest.raises(Unknown):
        Tokens({"one": "secret"}, 10).admit(shown, 1)


def test_every_caller_has_a_bucket_of_its_own() -> None:
    callers = Tokens({"one": "a", "other": "b"}, 10)
    callers.admit("Bearer a", 10)
    assert callers.admit("Bearer b", 10) == "other"
    with pytest.raises(TooMany):
        callers.admit("Bearer a", 10)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_tokens_that_others_can_read_or_change_are_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    Tokens.read(path, 10)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=rf"tokens holds a secret, and .* others \(mode {mode:04o}\)") as refused:
        Tokens.read(path, 10)
    assert "chmod 600" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"), [("a\n", "line 1"), (f"a {'b' * 32}\n# c\na {'c' * 32}\n", "line 3"), ("# none\n", "no token")]
)
def test_a_file_that_is_none_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").touch(mode=0o600)
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(DataError, match=said):
        Tokens.read(tmp_path / "tokens", 10)
