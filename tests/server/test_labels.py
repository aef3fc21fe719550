"""Noisy labels of a run on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.labels import NoisyLabels
from colonnade.common.privacy.prior import first_rows
from colonnade.server.privacy import NoisyLabelFile

LABELS = torch.arange(40) % 4
TRAIN = torch.arange(0, 40, 2)
ONE = LabelPrivacyConfig(epsilon=1.0)


def get(
    folder: Path, config: LabelPrivacyConfig | None = ONE, labels: torch.Tensor = LABELS, begun: bool = False
) -> NoisyLabels | None:
    return NoisyLabelFile(folder, begun=begun).get(config, labels, TRAIN, 4, seed=0)


def test_a_second_start_reads_the_labels_drawn_by_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get(tmp_path)
    assert first is not None and first.values.shape == (20, 4)
    monkeypatch.setattr(NoisyLabels, "draw", lambda *_: pytest.fail("noise was drawn again"))
    again = get(tmp_path, begun=True)
    assert again is not None and torch.equal(again.values, first.values)
    assert (again.noise, again.epsilon) == (first.noise, first.epsilon)


def test_row_numbers_of_another_type_are_the_same_rows(tmp_path: Path) -> None:
    first = NoisyLabelFile(tmp_path, begun=False).get(ONE, LABELS, TRAIN.long(), 4, seed=0)
    again = NoisyLabelFile(tmp_path, begun=True).get(ONE, LABELS, TRAIN.int(), 4, seed=0)
    assert first is not None and again is not None and torch.equal(again.values, first.values)


def test_sets_of_classes_are_read_too(tmp_path: Path) -> None:
    config = LabelPrivacyConfig(mechanism="subset", epsilon=1.0, size=2)
    first, again = get(tmp_path, config), get(tmp_path, config, begun=True)
    assert first is not None and again is not None and torch.equal(again.values, first.values)
    assert again.noise == first.noise and first.noise.summary() == {"mechanism": "subset", "size": 2}
    for other in (ONE, config.model_copy(update={"size": 1}), config.model_copy(update={"epsilon": 1.1})):
        with pytest.raises(CheckpointError, match="was drawn for other settings"):
            get(tmp_path, other)


def test_another_run_draws_anew(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = get(tmp_path / "one"), get(tmp_path / "two")
    assert one is not None and two is not None and not torch.equal(one.values, two.values)


def test_nothing_is_written_where_nothing_is_asked_for(tmp_path: Path) -> None:
    assert get(tmp_path, None) is None
    assert not list(tmp_path.iterdir())


def test_only_the_server_may_read_it(tmp_path: Path) -> None:
    get(tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("config", [LabelPrivacyConfig(epsilon=2.0), LabelPrivacyConfig(epsilon=1.0, seeded=True)])
def test_other_settings_are_refused(tmp_path: Path, config: LabelPrivacyConfig) -> None:
    get(tmp_path)
    with pytest.raises(CheckpointError, match="was drawn for other settings"):
        get(tmp_path, config)


def test_other_labels_are_refused(tmp_path: Path) -> None:
    get(tmp_path)
    changed = LABELS.clone()
    changed[TRAIN[3]] = (changed[TRAIN[3]] + 1) % 4
    with pytest.raises(CheckpointError, match="was drawn for other labels"):
        get(tmp_path, labels=changed)


def test_a_run_keeps_the_privacy_that_it_began_with(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="begun without label privacy and cannot go on with it"):
        get(tmp_path, begun=True)
    get(tmp_path)
    with pytest.raises(CheckpointError, match="begun with label privacy and cannot go on without it"):
        get(tmp_path, None, begun=True)


@pytest.mark.parametrize("damage", [b"", b"{}", b"x" * 400])
def test_a_damaged_file_is_refused_and_never_drawn_again(tmp_path: Path, damage: bytes) -> None:
    get(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        get(tmp_path)


def test_an_altered_value_is_noticed(tmp_path: Path) -> None:
    get(tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        get(tmp_path)


def test_labels_that_wait_are_stored_when_they_are_released_and_read_by_the_next_start(tmp_path: Path) -> None:
    config = LabelPrivacyConfig(mechanism="subset", epsilon=1.0, prior=True)
    first = get(tmp_path, config)
    assert first is not None and first.pending is not None and first.pending.released.sum() == 2
    first.pending.release(TRAIN[:7], torch.zeros(7, 4))
    again = get(tmp_path, config, begun=True)
    assert again is not None and again.pending is not None and torch.equal(again.values, first.values)
    expected = {*range(7), *first_rows(20).tolist()}
    assert set(again.pending.released.nonzero().flatten().tolist()) == expected
    assert not len(again.pending.release(TRAIN[:7], torch.randn(7, 4)))
    for other in (config.model_copy(update={"prior": False}), config.model_copy(update={"epsilon": 1.1})):
        with pytest.raises(CheckpointError, match="was drawn for other settings"):
            get(tmp_path, other)
