"""Blinded sums that are recovered among real processes, one of which is killed in the middle of a round."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.parsing.file import load
from colonnade.common.run.json_text import read_lines
from tests.cli.run.test_up import events, finish, start, summary_of, write
from tests.protocols.test_recovered_sums import late
from tests.support.federation import federate

pytestmark = pytest.mark.processes


def test_the_round_in_which_a_party_is_killed_is_summed_over_the_others(tmp_path: Path) -> None:
    """With the same loss, to the bit, as on the virtual clock, where its words come too late."""
    protocol = {"name": "fdml", "embedding": 8, "aggregate": "blinded"}
    more = {"absence": "continue", "quorum": {"need": 3, "grace": 5}, "blinding": {"recovery": "alone"}, "batch": 500}
    file, out = write(tmp_path, protocol, rounds=4, epochs=0, evaluate={"every": 99}, **more), tmp_path / "run"
    waiting = ("--chaos", "party1: delay=100ms")  # until the connection of the killed one has broken
    process = start("up", file, "--out", out, "--set", "launch.backoff=60", *waiting, "--chaos", "party4: crash=2")
    output = finish(process)
    assert process.returncode == 0, output
    assert "party4 was killed by SIGKILL" in output and summary_of(out)["status"] == "completed"
    assert [(event["round"], event["without"]) for event in events(out, "partial_sum")] == [(2, ["party4"])]
    assert not events(out, "skipped") and not events(out, "abandoned") and not events(out, "rollback")
    together = federate(load(file), delay=late_from_round_2)
    assert [event["loss"] for event in events(out, "round")] == [event["loss"] for event in together.of_kind("round")]
    ledger = read_lines(out / "parties" / "party1" / "ledger.jsonl")
    opened = [line["round"] for line in ledger if line.get("kind") == "OpenedShares"]
    assert opened == [1, 2, 3, 4]


late_from_round_2 = late(object, 1e4, rounds=tuple(range(2, 5)))
