"""A backdoor: a trained trigger decides, and neither an untrained one nor one in noise does."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.errors import InputError
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.backdoor import open_backdoor
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow

NOISED = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 2, delta: 1e-4}"


def test_a_trained_trigger_decides_and_noise_drowns_it(tmp_path: Path) -> None:
    sets = ("federation.epochs=20", "federation.batch=50", "federation.rows={train: 500, validation: 0, test: 300}")
    clear, noised = (
        open_backdoor(captured(tmp_path / str(len(more)), SPLIT, *sets, *more), "party1", 0, 30, 0,
                      simulate=simulate_captured)
        for more in ((), (NOISED,))
    )  # fmt: skip
    assert clear.success > 0.15 and clear.interval[0] > 3 * max(clear.untrained, clear.chance)
    assert clear.accuracy > clear.honest - 0.03 and clear.honest > 0.85
    assert noised.success < noised.chance + 0.1


def test_more_rows_than_the_class_has_are_refused(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, "federation.rounds=1", "federation.epochs=0")
    with pytest.raises(InputError, match=r"--labels 999: there are \d+ training rows of class 0"):
        open_backdoor(run, "party1", 0, 999, 0, simulate=simulate_captured)
