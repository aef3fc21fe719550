"""Rows that messages are about, against models that do not learn and known data."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.client.transcript.capture import Captured, read_capture
from colonnade.common.config.members import Config
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import InputError
from colonnade.common.protocols.split import Embedding
from colonnade.simulation.federation import Outcome, RunFiles
from colonnade_lab.attacks.rows import FieldRecords, Piece, gathered, pieces, vectors
from tests.support.federation import config, federate

pytestmark = pytest.mark.slow

TRAINING, EVALUATIONS = "capture.bin", "capture-evaluations.bin"

STILL = (
    "every_party.optimiser={name: sgd, lr: 1.0e-30}",
    "server.optimiser={name: sgd, lr: 1.0e-30}",
    "federation.shuffle=true",
)
SENT: dict[str, tuple[dict[str, Any], str]] = {
    "split": ({}, "Embedding.h"),
    "vafl": ({"arrivals": True}, "Embedding.h"),
    "czofo": ({"delta": "row", "directions": 3}, "Embedding.h"),
    "zoo_vfl": ({}, "Pair.h"),
    "vimadmm": ({"tau": 1}, "Embedding.h"),
}


def run(tmp_path: Path, name: str, *sets: str) -> tuple[Config, Outcome]:
    cfg = config({"name": name, "embedding": 6, **SENT[name][0]}, "every_party.capture={evaluations: all}", *sets)
    return cfg, federate(cfg, lambda *_: 0.01, files=RunFiles(tmp_path, cfg, Path()))


@pytest.mark.parametrize("name", SENT)
def test_sent_embeddings_are_the_models_of_the_named_rows(tmp_path: Path, name: str) -> None:
    cfg, outcome = run(tmp_path, name, *STILL)
    ctx, schedule = outcome.clients["party2"], outcome.server.schedule
    for file, parts in ((TRAINING, {"train"}), (EVALUATIONS, {"validation", "test"})):
        captured = read_capture(tmp_path / "parties" / "party2" / file, cfg.federation)
        found = [piece for piece in pieces(schedule, captured) if piece.way == "out"]
        assert {piece.part for piece in found} == parts
        for piece in found:
            assert set(piece.rows.tolist()) <= set(getattr(schedule.partition, piece.part).tolist())
            if piece.name in {SENT[name][1], "Evaluation.h"}:
                with torch.no_grad():
                    torch.testing.assert_close(piece.values, ctx.state["model"](ctx.features[piece.rows]))


@pytest.mark.parametrize("name", ["split", "vafl", "czofo"])
def test_returned_gradients_belong_to_the_rows_sent_before(tmp_path: Path, name: str) -> None:
    cfg, outcome = run(tmp_path, name)
    captured = read_capture(tmp_path / "parties" / "party1" / TRAINING, cfg.federation)
    found = list(pieces(outcome.server.schedule, captured))
    answers = [(before, after) for before, after in pairwise(found) if after.way == "in"]
    assert len(answers) > 8 and all(torch.equal(before.rows, after.rows) for before, after in answers)
    assert len({piece.epoch for piece in found}) > 1


def test_a_gradient_is_the_one_of_its_row(tmp_path: Path) -> None:
    """Without learning, a row's gradient is the same in every epoch, but for the size of its batch."""
    cfg, outcome = run(tmp_path, "split", *STILL, "federation.epochs=3")
    captured = read_capture(tmp_path / "parties" / "party1" / TRAINING, cfg.federation)
    first = torch.zeros(1797, 6)
    for piece in (piece for piece in pieces(outcome.server.schedule, captured) if piece.way == "in"):
        whole = piece.values * len(piece.rows)
        if piece.epoch == 1:
            first[piece.rows] = whole
        else:
            torch.testing.assert_close(whole, first[piece.rows], rtol=1e-4, atol=1e-7)


def test_a_sum_over_a_batch_names_no_row(tmp_path: Path) -> None:
    cfg, outcome = run(tmp_path, "czofo", "federation.protocol.delta=batch")
    captured = read_capture(tmp_path / "parties" / "party1" / TRAINING, cfg.federation)
    assert gathered(pieces(outcome.server.schedule, captured), "in", FieldRecords) == [{}]


def test_other_rows_than_the_schedules_are_refused() -> None:
    schedule = Schedule(config({"name": "split"}).federation, 1797, 0)
    captured = Captured("out", 1, Embedding(1, torch.zeros(3, 2)))
    with pytest.raises(InputError, match="Embedding of round 1 has 3 rows, the schedule 256"):
        list(pieces(schedule, [captured]))


def piece(epoch: int, rows: list[int], *values: float) -> Piece:
    return Piece("Embedding.h", "out", epoch, "train", torch.tensor(rows), torch.tensor(values)[:, None])


def named(epochs: int) -> FieldRecords:
    made = FieldRecords(epochs)
    for one in (piece(1, [0, 1], 1, 2), piece(2, [1, 0], 3, 4), piece(3, [0, 1], 5, 6), piece(4, [1], 8)):
        made.add(one)
    return made


@pytest.mark.parametrize(("epochs", "means"), [(1, [5.0, 8.0]), (2, [4.5, 7.0])])
def test_the_newest_of_every_row_are_averaged_also_where_the_last_epoch_is_cut_short(
    epochs: int, means: list[float]
) -> None:
    rows, values = named(epochs).newest()
    assert rows.tolist() == [0, 1] and values.flatten().tolist() == means


def test_the_first_and_the_last_epoch_are_kept() -> None:
    made = named(1)
    assert [one.epoch for one in made.first] == [1]
    assert [one.epoch for one in made.last] == [3, 4]


def test_fields_stand_side_by_side_for_the_rows_that_all_know() -> None:
    a, b = FieldRecords(), FieldRecords()
    a.add(piece(1, [3, 1, 2], 3, 1, 2))
    b.add(piece(1, [2, 3, 9], 20, 30, 90))
    rows, values = vectors([a.newest(), b.newest()])
    assert rows.tolist() == [2, 3]
    torch.testing.assert_close(values[1] / values[0], torch.tensor([1.5, 1.5]))
