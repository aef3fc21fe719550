"""Scaling curves: the bytes they count, the pictures they draw, and a sampler's attribution of a frame."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.scaling import COLUMNS, SWEEPS, TRAINING, Point, Setting, point_of, sketch, table, write
from benchmarks.shares import REST, codec, place_of


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write(folder := tmp_path_factory.mktemp("columns"), training=512)
    return folder


@pytest.mark.parametrize("parties", [2, 3])
def test_split_sends_an_embedding_and_a_gradient_a_party(columns: Path, parties: int) -> None:
    point = point_of(Setting("split", parties, batch=64, width=8, hidden=16), columns)
    assert point.megabytes == pytest.approx(parties * 2 * 64 * 8 * 4 / 1e6)
    assert point.seconds > 0 and point.floor > 0


@pytest.mark.parametrize("parties", [2, 3, 100])
def test_all_columns_are_shared(parties: int) -> None:
    shares = Setting("split", parties).shares()
    assert len(shares) == parties and sum(shares) == COLUMNS and max(shares) - min(shares) <= 1


def test_every_setting_is_a_federation_without_a_ragged_batch() -> None:
    for sweep in SWEEPS:
        assert list(sweep.values) == sorted(set(sweep.values))
        for setting in sweep.settings():
            assert len(setting.config(6).federation.names) == setting.parties
            assert TRAINING % setting.batch == 0


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.key)
def test_a_picture_has_every_point_of_every_curve(sweep) -> None:
    points = [Point(setting, 0.01 * n, 0.005 * n, 1.0) for n, setting in enumerate(sweep.settings(), 1)]
    groups = [e for e in ET.fromstring(sketch(sweep, points)).iter() if e.tag.endswith("}g")]
    dots = [sum(e.tag.endswith("}use") for e in group) for group in groups]
    assert dots.count(len(sweep.values)) == 2 * len(sweep.protocols)
    assert len(table(sweep, points).splitlines()) == 2 + len(points)


def test_a_frame_lies_where_the_innermost_that_says_it_does(columns: Path) -> None:
    assert place_of(sys._getframe()) == REST
    assert place_of(None) == REST
    for file, place in (
        ("/x/common/models/losses.py", "models and numerics"),
        ("/x/common/crypto/sealing.py", "crypto"),
    ):
        scope: dict[str, object] = {"look": lambda: place_of(sys._getframe())}
        exec(compile("found = look()", file, "exec"), scope)
        assert scope["found"] == place


def test_a_rounds_messages_pass_the_codec(columns: Path) -> None:
    assert codec(Setting("split", 2, batch=64, width=8, hidden=16), columns) > 0
    assert codec(Setting("fedvs", 4, batch=64, width=8), columns) > 0
