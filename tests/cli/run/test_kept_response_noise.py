"""Response noise: the privacy spent outlives rollbacks and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.common.privacy.accounting.accountant import epsilon
from tests.cli.run.test_resume import resume
from tests.cli.run.test_up import events, summary_of, write
from tests.support.household import colonnade

pytestmark = pytest.mark.slow

VAFL = {"name": "vafl", "embedding": 8}
PRIVATE = "server.privacy.answers={clip: 0.1, head_clip: 1, noise_multiplier: 20}"


def paid(run: Path) -> dict[str, Any]:
    return dict(summary_of(run)["answer_privacy"])


def test_a_run_that_goes_on_pays_on_and_keeps_its_noise(tmp_path: Path) -> None:
    file, run = write(tmp_path, VAFL, epochs=2, checkpoint={"rounds": 4}), tmp_path / "run"
    code, output = colonnade("up", file, "--out", run, "--set", PRIVATE)
    assert code == 0, output
    assert "answers noised, epsilon" in output
    assert paid(run)["epsilon"] == pytest.approx(epsilon(2 * (4 + 1), 20, 1e-6, "replace"), rel=1e-5)
    code, output = resume(run, "--set", "federation.epochs=3")
    assert code == 0, output
    assert paid(run)["releases"] == 15
    code, output = resume(run, "--set", "server.privacy.answers.noise_multiplier=30")
    assert code == 2 and "counts releases with noise_multiplier = 20" in output
    code, output = resume(run, "--set", "server.privacy.answers=null")
    assert code == 2 and "cannot go on without them" in output and "Traceback" not in output


def test_rounds_that_are_done_again_are_paid_again(tmp_path: Path) -> None:
    """The rows of round 7 are those of round 1; rounds 6 to 8 come twice, or all if nothing was saved."""
    file, run = write(tmp_path, VAFL, epochs=2, checkpoint={"rounds": 5}), tmp_path / "run"
    code, output = colonnade("up", file, "--out", run, "--set", PRIVATE, "--chaos", "party3: crash=9")
    assert code == 0, output
    assert events(run, "rollback")
    assert paid(run)["releases"] in (15, 20)
