"""Members that are restarted, and times of restarts."""

from __future__ import annotations

from colonnade.common.config.members import LaunchConfig
from colonnade.launcher.federation import Restarts


def test_the_pause_doubles_until_no_restart_is_left() -> None:
    now = 0.0
    restarts = Restarts(LaunchConfig(restarts=3, backoff=0.5), lambda: now)
    for pause in (0.5, 1.0, 2.0):
        assert restarts.hopeful("ada", -9) and restarts.noticed("ada") and not restarts.noticed("ada")
        now += pause - 0.01
        assert restarts.hopeful("ada", -9) and not restarts.due("ada")
        now += 0.02
        assert restarts.due("ada")
    assert not restarts.hopeful("ada", -9)
    assert restarts.hopeful("bob", -9)


def test_a_member_that_ended_by_itself_is_not_restarted() -> None:
    restarts = Restarts(LaunchConfig())
    assert not restarts.hopeful("ada", 0) and not restarts.hopeful("ada", 3) and restarts.hopeful("ada", -15)


def test_no_restarts_are_none() -> None:
    assert not Restarts(LaunchConfig(restarts=0)).hopeful("ada", -9)
