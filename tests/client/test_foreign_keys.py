"""Foreign keys are counted over the history of a party's folder; a run and its predictions are counted apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.client.alignment.rows import PartyRows
from colonnade.client.training.progress import TrainingProgress
from colonnade.common.alignment.limits import FOREIGN_KEYS, ForeignKeys
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.run_cache import RunCache
from tests.support.alignment import federation


def opened(folder: Path, most: int | None = 10) -> ForeignKeys:
    """The record as a new process reads it."""
    return ForeignKeys("ada", most, path=folder / "once" / FOREIGN_KEYS)


def test_a_repeat_is_free_and_other_lists_add_up_over_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        opened(tmp_path).count("server", 6, "one")
    opened(tmp_path).count("server", 4, "two")
    with pytest.raises(ConfigError, match="12 keys at server, in 3 lists that differ"):
        opened(tmp_path).count("server", 2, "three")
    opened(tmp_path).count("server", 6, "one")


def test_members_are_counted_apart(tmp_path: Path) -> None:
    opened(tmp_path).count("server", 10, "one")
    opened(tmp_path).count("bob", 10, "one")
    with pytest.raises(ConfigError, match="11 keys at bob"):
        opened(tmp_path).count("bob", 1, "two")


def test_a_list_that_may_be_a_repeat_is_awaited_and_another_is_refused_at_once(tmp_path: Path) -> None:
    keys = opened(tmp_path)
    keys.count("server", 6, "one")
    keys.expect("server", 6)
    keys.expect("server", 4)
    with pytest.raises(ConfigError, match="11 keys at server, in 2 lists that differ"):
        keys.expect("server", 5)
    with pytest.raises(ConfigError, match="max_other_rows = 10: the federation has 11 keys at bob"):
        keys.expect("bob", 11)


def test_attempts_are_counted_until_one_completes(tmp_path: Path) -> None:
    assert [opened(tmp_path).begin() for _ in range(3)] == [0, 1, 2] and not opened(tmp_path).settled
    opened(tmp_path).settle()
    assert opened(tmp_path).settled and opened(tmp_path).begin() == 0


def test_without_a_limit_lists_are_counted_all_the_same(tmp_path: Path) -> None:
    opened(tmp_path, None).count("server", 10**6, "one")
    with pytest.raises(ConfigError, match="1000001 keys at server"):
        opened(tmp_path).count("server", 1, "two")


@pytest.mark.parametrize("content", ["", "[]", '{"begun": 1}', '{"begun": 1, "settled": false, "lists": {"a": 1}}'])
def test_a_count_that_was_altered_is_refused(tmp_path: Path, content: str) -> None:
    opened(tmp_path).begin()
    (tmp_path / "once" / FOREIGN_KEYS).write_text(content)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        opened(tmp_path)


def test_a_list_that_the_disk_does_not_take_is_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    keys = opened(tmp_path)
    keys.count("server", 6, "one")
    monkeypatch.setattr("colonnade.common.run.files.write_durably", full)
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match="cannot be written: No space left on device"):
            keys.count("server", 2, "two")
    monkeypatch.undo()
    assert (tmp_path / "once" / FOREIGN_KEYS).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("policy", "trains", "predicts"),
    [
        ({}, None, None),
        ({"max_other_rows": 5}, 5, 5),
        ({"max_other_rows": 5, "max_predicted_rows": 50}, 5, 50),
        ({"max_predicted_rows": 50}, None, 50),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["training", "predictions"])
def test_predictions_have_a_limit_of_their_own(
    tmp_path: Path, policy: dict[str, int], trains: int | None, predicts: int | None, whole: bool
) -> None:
    features = Features(torch.zeros(2, 1), ("c",), ids=("x", "y"))
    most = trains if whole else predicts
    rows = PartyRows(
        "party1", federation(2), PolicyConfig(**policy), features, RunCache(), tmp_path / "once", tmp_path,
        Telemetry(None), TrainingProgress(), whole,
    )  # fmt: skip
    assert rows.foreign.most == most
    if most is not None:
        rule = "max_other_rows" if whole or most == 5 else "max_predicted_rows"
        with pytest.raises(ConfigError, match=f"{rule} = {most}"):
            rows.foreign.expect("server", most + 1)
