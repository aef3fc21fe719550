"""A party that has left under `up`: its own error comes first, or else that it has left."""

from __future__ import annotations

import io
from pathlib import Path

from colonnade.launcher.federation import Launch, LaunchOptions
from colonnade.reports.console.screen import Screen
from tests.support.federation import config


def launch(folder: Path) -> tuple[Launch, io.StringIO]:
    text = io.StringIO()
    options = LaunchOptions(screen=Screen(file=text, width=200))
    made = Launch(
        config({"name": "split", "embedding": 8}), folder, folder, folder, 0.0, options=options, resumed=False
    )
    return made, text


def left(party: str) -> dict[str, str]:
    return {"kind": "leave", "party": party, "reason": f"{party} was lost: the connection was closed"}


def test_nobody_is_said_to_be_lost_before_the_end(tmp_path: Path) -> None:
    made, text = launch(tmp_path)
    for party in ("party1", "party2"):
        made.show(left(party))
    assert not text.getvalue()
    made.show_left()  # of a run in which nobody has failed
    assert text.getvalue() == "".join(
        f"{party}: was lost: the connection was closed\n" for party in ("party1", "party2")
    )


def test_who_was_ended_because_another_has_failed_is_not_said_to_be_lost(tmp_path: Path) -> None:
    made, text = launch(tmp_path)
    made.sent_away.add("party2")
    for party in ("party1", "party2", "party3"):
        made.show(left(party))
    made.show_left()
    assert text.getvalue() == "".join(
        f"{party}: was lost: the connection was closed\n" for party in ("party1", "party3")
    )


def test_who_comes_back_is_said_to_have_been_away_first(tmp_path: Path) -> None:
    made, text = launch(tmp_path)
    made.show(left("party1"))
    made.show({"kind": "join", "party": "party2", "of": 3, "joined": 1})
    assert "was lost" not in text.getvalue()
    made.show({"kind": "rejoin", "party": "party1", "of": 3, "joined": 2, "round": 4, "seconds": 1.0})
    assert text.getvalue().index("was lost") < text.getvalue().index("is back")
