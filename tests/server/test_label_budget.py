"""Counts of releases by row: over restarts they can only grow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.privacy import ResponseNoiseConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault
from colonnade.server.privacy import RowReleases, open_releases
from tests.support.federation import config as digits
from tests.support.oracles import exact_epsilon

CONFIG = ResponseNoiseConfig(clip=0.1, head_clip=1, noise_multiplier=20)
LONG = Schedule(digits({"name": "vafl"}, "federation.epochs=64").federation, 1797, 0)
FIRST, LATER = torch.arange(5), torch.arange(3, 9)


def opened(
    folder: Path, config: ResponseNoiseConfig | None = CONFIG, begun: bool = True, schedule: Schedule = LONG
) -> RowReleases | None:
    return open_releases(config, schedule, 4, 1797, folder, begun=begun)


def ceiling(folder: Path) -> int:
    return int(json.loads((folder / "answers.json").read_text())["ceiling"])


def test_every_row_has_its_own_count_and_the_guarantee_is_for_the_largest() -> None:
    releases = RowReleases(CONFIG, 20)
    assert releases.most == 0 and releases.epsilon == 0
    for batch in (FIRST, LATER, FIRST):
        releases.spend(batch)
    assert releases.most == 3  # rows 3 and 4
    assert releases.epsilon == pytest.approx(exact_epsilon([(10, 3)], 1e-6), rel=0.003)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 7))
def test_the_ceiling_is_never_below_a_count_and_never_a_block_above(drawn: list[int], block: int) -> None:
    releases = RowReleases(CONFIG, 10, block)
    for row in drawn:
        releases.spend(torch.tensor([row]))
        assert releases.most <= releases.paid < releases.most + block
    assert releases.most == max(map(drawn.count, drawn), default=0)


def test_the_ceiling_is_on_the_disk_before_a_release_passes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = opened(tmp_path, begun=False)
    written = []
    monkeypatch.setattr(
        "colonnade.common.run.json_text.write_durably",
        lambda path, content, _mode: written.append(json.loads(content)) if path.suffix == ".json" else None,
    )
    for count in range(1, 22):
        releases.spend(FIRST)
        assert written[-1]["ceiling"] >= count
    assert [entry["ceiling"] for entry in written] == [10, 20, 30]  # 64 epochs of 5 releases in 32 blocks


def test_after_a_crash_all_rows_count_as_many_as_the_ceiling_says(tmp_path: Path) -> None:
    killed = opened(tmp_path, begun=False)
    for _ in range(11):
        killed.spend(FIRST)
    after = opened(tmp_path)
    assert after.most == 20
    after.spend(LATER)
    assert after.most == 21 and ceiling(tmp_path) == 30


def test_a_clean_end_forfeits_nothing(tmp_path: Path) -> None:
    releases = opened(tmp_path, begun=False)
    for _ in range(11):
        releases.spend(FIRST)
    releases.close()
    assert ceiling(tmp_path) == opened(tmp_path).most == 11


def test_nothing_is_paid_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    releases = opened(tmp_path / "run", begun=False)
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    (tmp_path / "run").rmdir()
    with pytest.raises(EnvironmentFault, match=r"answers\.json cannot be written: .*nothing leaves without it"):
        releases.spend(FIRST)
    assert releases.most == 0


def test_a_run_keeps_the_privacy_that_it_began_with(tmp_path: Path) -> None:
    assert opened(tmp_path, None) is None and not list(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match="begun without private answers and cannot go on with them"):
        opened(tmp_path)
    opened(tmp_path, begun=False)
    with pytest.raises(CheckpointError, match="begun with private answers and cannot go on without them"):
        opened(tmp_path, None)
    for key, value in (("noise_multiplier", 10.0), ("seeded", True)):
        with pytest.raises(CheckpointError, match=rf"server\.privacy\.answers\.{key} is {value}"):
            opened(tmp_path, CONFIG.model_copy(update={key: value}))
    assert opened(tmp_path, CONFIG.model_copy(update={"delta": 1e-7})) is not None


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"ceiling": -3}', '{"ceiling": null}'])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    opened(tmp_path, begun=False)
    (tmp_path / "answers.json").write_text(damage)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        opened(tmp_path)


def test_a_delta_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.privacy\.answers\.delta = 0\.001: with 1294 training rows"):
        opened(tmp_path, CONFIG.model_copy(update={"delta": 1e-3}), begun=False)
