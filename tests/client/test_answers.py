"""What a server of any kind can ask a party in a run: counted before it is answered, over all starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.client.privacy.answers import Answers
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault
from colonnade.common.privacy.accounting.ledger import verify
from colonnade.common.run.json_text import read_lines


def opened(path: Path | None, *, policy: PolicyConfig | None = None, expected: int = 320) -> Answers:
    return Answers(path, "bank", policy or PolicyConfig(), "vectors", expected)


def test_answers_are_in_the_ledger_before_they_are_given_and_count_over_all_starts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = opened(path)
    for _ in range(4):
        first.take(16)
        reserved = sum(line["vectors"]["reserved"] for line in read_lines(path))
        assert reserved >= first.answered
    killed = opened(path)  # the first was not closed
    assert 64 <= killed.answered < 64 + 320 // 32
    before = killed.answered
    killed.take(2)
    killed.close()
    assert opened(path).answered == before + 2
    assert verify(path).broken is None


@pytest.mark.parametrize("path", [None, Path("ledger.jsonl")])
def test_by_default_a_run_may_be_repeated_once(tmp_path: Path, path: Path | None) -> None:
    answers = opened(None if path is None else tmp_path / path)
    for _ in range(2 * 320 // 32):
        answers.take(32)
    with pytest.raises(ConfigError, match=r"policy\.max_vectors = 640: the federation has asked for 641") as refused:
        answers.take(1)
    assert "raise policy.max_vectors and resume" in refused.value.hint
    assert refused.value.shared == str(refused.value)
    assert answers.answered == 640


def test_the_policy_decides_instead_and_refuses_a_run_that_needs_more() -> None:
    assert opened(None, policy=PolicyConfig(max_vectors=320)).most == 320
    with pytest.raises(ConfigError, match="max_vectors = 319: the federation has 320 vectors in a run"):
        opened(None, policy=PolicyConfig(max_vectors=319))
    few = Answers(None, "bank", PolicyConfig(max_splits=3), "splits", 100)
    few.take(3)
    with pytest.raises(ConfigError, match="max_splits = 3: the federation has asked for 4 splits"):
        few.take(1)


def test_nothing_is_answered_that_the_disk_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    answers = opened(path)
    path.mkdir()
    with pytest.raises(EnvironmentFault, match="nothing is answered without it"):
        answers.take(1)
    assert answers.answered == 0
    path.rmdir()
    path.write_text('{"vectors": {"reserved": "5"}}\n')
    with pytest.raises(CheckpointError, match="a line that counts vectors was altered"):
        opened(path)
