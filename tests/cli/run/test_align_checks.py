"""Alignments with checks among real processes over mutual TLS, and in a simulation; and the next run that uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.run.test_up import events
from tests.support.household import colonnade
from tests.support.tables import table_tree, write_tables


@pytest.mark.parametrize(("command", "checks"), [("up", "proofs"), ("simulate", "planted")])
def test_a_checked_alignment_finds_the_common_rows_and_is_used_again(tmp_path: Path, command: str, checks: str) -> None:
    if checks == "proofs":
        pytest.importorskip("coincurve")
    ids = write_tables(tmp_path)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(table_tree(epochs=1, align_checks=checks)))
    common, reused = set.intersection(*map(set, ids.values())), []
    for out in (tmp_path / "runs" / "first", tmp_path / "runs" / "second"):
        code, output = colonnade(command, tmp_path / "federation.yaml", "--out", out)
        assert code == 0, output
        (aligned,) = [event for event in events(out, "aligned") if event.get("party", "server") == "server"][:1]
        assert aligned["common"] == len(common) > 0
        reused.append(aligned["reused"])
    assert reused == [0, len(common)]
