"""What others test in a day is counted in a member's own folder, by fingerprint, before it is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.common.alignment.limits import NAME, DailyLimits
from colonnade.common.alignment.store import forget
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault

HOUR = 3600.0
BOB, EVE = "b0" * 32, "e5" * 32


def opened(folder: Path, now: float = 1000 * HOUR, bob: str = BOB, **limits: int | None) -> DailyLimits:
    """As a new process opens it."""
    return DailyLimits(folder / "ada" / NAME, {"bob": bob, "eve": EVE}, AlignmentsConfig(**limits), lambda: now)


def kept(folder: Path) -> bytes:
    return (folder / "ada" / NAME).read_bytes()


def test_alignments_and_keys_add_up_over_processes(tmp_path: Path) -> None:
    for _ in range(2):
        opened(tmp_path, per_day=2).count({"bob": 5})
    before = kept(tmp_path)
    with pytest.raises(ConfigError, match="per_day = 2: with this alignment bob has tested 3 alignments in 24 hours"):
        opened(tmp_path, per_day=2).count({"eve": 1, "bob": 5})
    with pytest.raises(ConfigError, match="rows_per_day = 14: with this alignment bob has tested 15 keys"):
        opened(tmp_path, rows_per_day=14).count({"bob": 5})
    assert kept(tmp_path) == before  # refusals write nothing, of nobody
    opened(tmp_path, rows_per_day=15).count({"bob": 5})
    assert opened(tmp_path).tested("bob") == (3, 15) and opened(tmp_path).tested("eve") == (0, 0)


def test_the_first_alignment_can_be_too_large(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows_per_day = 4") as refused:
        opened(tmp_path, rows_per_day=4).count({"bob": 5})
    assert refused.value.hint == "raise the limit, if you trust bob"
    assert not (tmp_path / "ada" / NAME).exists()


def test_an_hour_counts_until_all_of_it_is_a_day_ago(tmp_path: Path) -> None:
    at = 1000.9 * HOUR
    opened(tmp_path, at).count({"bob": 5})
    with pytest.raises(ConfigError) as refused:
        opened(tmp_path, at + 24 * HOUR, per_day=1).count({"bob": 5})
    assert refused.value.hint.startswith("wait until 12 February 17:00 UTC, when the oldest no longer counts; or raise")
    opened(tmp_path, 1025 * HOUR, per_day=1).count({"bob": 5})
    assert list(json.loads(kept(tmp_path))[BOB]) == ["1025"]  # older ones are gone: the file does not grow


def test_setting_the_clock_back_frees_nothing(tmp_path: Path) -> None:
    opened(tmp_path).count({"bob": 5})
    with pytest.raises(ConfigError):
        opened(tmp_path, 500 * HOUR, per_day=1).count({"bob": 5})


def test_a_partner_is_its_fingerprint_and_not_its_name(tmp_path: Path) -> None:
    opened(tmp_path, per_day=1).count({"bob": 5})
    opened(tmp_path, bob="cc" * 32, per_day=1).count({"bob": 5})
    with pytest.raises(ConfigError):
        DailyLimits(tmp_path / "ada" / NAME, {"carl": BOB}, AlignmentsConfig(per_day=1), lambda: 1000 * HOUR).count(
            {"carl": 1}
        )


def test_a_party_counts_lists_as_of_the_server_that_announced_them(tmp_path: Path) -> None:
    """Also those of other parties that it counted before by their owner: any server may have announced them."""

    def through(server: str, **limits: int) -> DailyLimits:
        return DailyLimits(tmp_path / NAME, {SERVER: server}, AlignmentsConfig(**limits), lambda: 1000 * HOUR)

    owners = {"eve": EVE, "the server": BOB}
    DailyLimits(tmp_path / NAME, owners, now=lambda: 1000 * HOUR).count({"eve": 5, "the server": 3})
    assert through(BOB).tested(SERVER) == (1, 8) and through("cc" * 32).tested(SERVER) == (0, 8)
    through(BOB).count({SERVER: 90})
    assert through(BOB).tested(SERVER) == (2, 98) and through("cc" * 32).tested(SERVER) == (0, 8)
    with pytest.raises(ConfigError, match="certificate b0b0b0b0b0b0b0b0… has announced 99 keys of other members"):
        through(BOB, rows_per_day=98).count({SERVER: 1})
    with pytest.raises(ConfigError, match="has announced 3 alignments in 24 hours"):
        through(BOB, per_day=2).count({SERVER: 1})
    through("cc" * 32, per_day=1, rows_per_day=98).count({SERVER: 90})


def test_forgetting_kept_alignments_forgets_no_count(tmp_path: Path) -> None:
    opened(tmp_path).count({"bob": 5})
    (tmp_path / "ada" / "alignments.salt").write_bytes(bytes(32))
    forget(tmp_path)
    assert opened(tmp_path).tested("bob") == (1, 5) and not (tmp_path / "ada" / "alignments.salt").exists()


def test_nothing_is_allowed_that_the_disk_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("colonnade.common.run.json_text.write_durably", full)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        opened(tmp_path).count({"bob": 5})
    monkeypatch.undo()
    opened(tmp_path).count({"bob": 5})
    assert (tmp_path / "ada" / NAME).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ada").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "content", ["", "[]", '{"b": 1}', '{"b": {"x": [1, 2]}}', '{"b": {"1": [1]}}', '{"b": {"1": [-1, 2]}}']
)
def test_a_count_that_was_altered_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    opened(tmp_path).count({"bob": 5})
    (tmp_path / "ada" / NAME).write_text(content)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        opened(tmp_path).count({"bob": 5})
    assert kept(tmp_path) == content.encode()
