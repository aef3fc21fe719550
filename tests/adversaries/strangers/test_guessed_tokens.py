"""Somebody guesses the token of a caller: short ones are refused, and ours have 256 random bits.

Bounds: no cell.
"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli.main import app
from colonnade.common.errors import DataError, IdentityError
from colonnade.server.prediction.serving.tokens import Tokens, add_caller


def keep(folder: Path, text: str) -> Path:
    path = folder / "serve.tokens"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@pytest.mark.parametrize("token", ["letmein!", "x" * 31])
def test_a_short_token_is_refused_with_a_hint_to_generate_one(tmp_path: Path, token: str) -> None:
    with pytest.raises(DataError, match=rf"line 2: the token of 'bob' has {len(token)} characters") as refused:
        Tokens.read(keep(tmp_path, f"ada {'y' * 32}\nbob {token}\n"), 10)
    assert "colonnade token bob" in refused.value.hint and token not in f"{refused.value}{refused.value.hint}"


def test_the_command_makes_one_that_is_accepted_in_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "serve.tokens"
    said = [CliRunner().invoke(app, ["token", name, "--tokens", str(path)]) for name in ("ada", "bob")]
    tokens = [one.output.strip() for one in said]
    assert all(one.exit_code == 0 for one in said) and len({*tokens}) == 2 and min(map(len, tokens)) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    callers = Tokens.read(path, 10)
    assert [callers.admit(f"Bearer {token}", 1) for token in tokens] == ["ada", "bob"]


def test_a_name_twice_or_none_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = keep(tmp_path, f"ada {'y' * 32}")
    for name in ("ada", "", "a b", "a\n", "#a", "x" * 64):
        with pytest.raises(DataError):
            add_caller(path, name)
    assert path.read_text() == f"ada {'y' * 32}"
    token = add_caller(path, "bob")
    assert Tokens.read(path, 10).admit(f"Bearer {token}", 1) == "bob"
    path.chmod(0o644)
    with pytest.raises(IdentityError):
        add_caller(path, "cyd")
