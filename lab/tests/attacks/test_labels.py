"""Label inference with known results: labels in the open, noise, and gradients that name them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import make_classification
from torch import Tensor

import colonnade
from colonnade.common.data.rows import generator
from colonnade_lab.attacks.labels import best_names, clusters, directions, guesses, infer, principal_sign
from colonnade_lab.attacks.rows import Piece
from colonnade_lab.attacks.run import AttackedRun, largest_class, open_run
from lab.tests.attacks.stage import SPLIT, captured
from tests.cli.data.test_wrong_input import run as command

pytestmark = pytest.mark.slow

LABELS = torch.randint(0, 10, (1200,), generator=generator("labels"))


def said(values: Tensor, batch: int = 200) -> list[Piece]:
    """One piece a batch, of rows in another order than their numbers."""
    rows = torch.randperm(len(values), generator=generator("order"))
    return [Piece("G.g", "in", 1, "train", part, values[part]) for part in torch.split(rows, batch)]


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=generator("noise"))


def by_method(values: Tensor, labels: Tensor = LABELS, classes: int = 10) -> dict[str, tuple[float, float]]:
    return {method: (found, chance) for method, found, chance, _ in guesses(said(values), labels, classes)}


def test_planted_labels_are_found_by_everything_that_looks_for_them() -> None:
    one_hot = torch.eye(10)[LABELS]
    found = by_method(one_hot + 0.01 * noise(1200, 10))
    assert found["argmax"][0] == 1 and found["argmin"][0] < 0.2
    for method in ("clusters", "clusters of directions", "clusters, batch by batch"):
        assert found[method][0] > 0.97 and found[method][1] < 0.3


def test_a_gradient_of_the_cross_entropy_names_every_label() -> None:
    logits = noise(1200, 10).requires_grad_()
    torch.nn.functional.cross_entropy(logits, LABELS).backward()
    assert logits.grad is not None and by_method(logits.grad)["argmin"][0] == 1


def test_noise_names_no_label() -> None:
    for found, chance in by_method(noise(1200, 10)).values():
        assert abs(found - chance) < 0.05 and chance < 0.25


def test_two_classes_lie_on_two_sides() -> None:
    labels = LABELS % 2
    values = noise(1200, 6) + 8 * (labels[:, None] - 0.5) * torch.tensor([0, 1.0, -1, 0, 0.5, 0])
    assert by_method(values, labels, 2)["principal sign"][0] > 0.99
    assert by_method(noise(1200, 6), labels, 2)["principal sign"][0] < 0.58
    flipped = principal_sign(values) == labels
    assert flipped.all() or not flipped.any()


def test_directions_that_turn_between_batches_are_found_batch_by_batch_alone() -> None:
    pieces = said(torch.zeros(1200, 10))
    for number, piece in enumerate(pieces):
        turn = torch.linalg.qr(torch.randn(10, 10, generator=generator("turn", number))).Q
        piece.values.copy_((torch.eye(10)[LABELS[piece.rows]] + 0.01 * torch.randn(len(piece.rows), 10)) @ turn)
    found = {method: share for method, share, _, _ in guesses(pieces, LABELS, 10)}
    assert found["clusters, batch by batch"] > 0.95 and found["clusters"] < 0.7


def test_labels_that_are_sent_are_read() -> None:
    pieces = [Piece("Labels.y", "in", 1, "train", rows, LABELS[rows]) for rows in torch.arange(1200).split(300)]
    assert guesses(pieces, LABELS, 10) == [("sent as they are", 1.0, largest_class(LABELS), 1200)]


def test_names_of_clusters_are_the_best() -> None:
    """Against every assignment of a small table, one by one."""
    groups = torch.randint(0, 3, (60,), generator=generator("groups"))
    truth = torch.randint(0, 3, (60,), generator=generator("truth"))
    table = np.zeros((3, 3))
    for group, label in zip(groups.tolist(), truth.tolist(), strict=True):
        table[group, label] += 1
    best = table[linear_sum_assignment(-table)].sum()
    assert int((best_names(groups, truth, 3) == truth).sum()) == best
    assert len(torch.unique(best_names(torch.arange(3), truth[:3], 3))) == 3


def test_fewer_different_vectors_than_classes_are_no_error() -> None:
    assert clusters(torch.zeros(5, 2), 3).tolist() == [0] * 5
    assert directions(torch.zeros(2, 2)).tolist() == [[0, 0], [0, 0]]


def test_split_learning_on_the_digits_leaks_labels(tmp_path: Path) -> None:
    run: AttackedRun = captured(tmp_path, SPLIT, "federation.epochs=1")
    best, *_ = infer(run, "party1")
    assert best.field == "Gradient.dh" and best.accuracy > best.chance + 0.2


def test_loss_differences_of_rows_leak_through_their_directions_and_those_of_batches_little(tmp_path: Path) -> None:
    """Raw differences along other directions in every row reveal nothing; as estimates they do."""
    row = captured(tmp_path / "row", {"name": "czofo", "embedding": 10, "delta": "row", "directions": 16})
    best, *_ = infer(row, "party1")
    assert best.field == "Differences, estimated" and best.accuracy > best.chance + 0.2
    plain = [guess for guess in infer(row, "party1") if guess.field == "Differences.delta"]
    assert plain and all(guess.accuracy < guess.chance + 0.1 for guess in plain)
    found = infer(captured(tmp_path / "batch", {"name": "czofo", "embedding": 10, "delta": "batch"}), "party1")
    assert {guess.field for guess in found} == {"Differences, estimated"}
    assert all(guess.accuracy < guess.chance + 0.1 for guess in found)


@pytest.mark.parametrize("protocol", [{"name": "agg_vfl"}, {"name": "vimadmm", "embedding": 10, "tau": 2}])
def test_some_protocols_name_nearly_every_label(tmp_path: Path, protocol: dict[str, object]) -> None:
    """The statement of docs/security.md."""
    best, *_ = infer(captured(tmp_path, protocol), "party1")
    assert best.accuracy > 0.95 and best.method == "argmin"


def test_labels_that_were_sent_once_are_found(tmp_path: Path) -> None:
    best, *_ = infer(captured(tmp_path, {"name": "fdml", "embedding": 10}), "party1")
    assert (best.method, best.accuracy) == ("sent as they are", 1)


def test_an_aligned_run_is_attacked_by_its_common_rows(tmp_path: Path, monkeypatch, capfd) -> None:
    """Tables in orders of their own, with rows that others lack: what comes back names the right rows' labels."""
    draws = np.random.default_rng(0)
    x, y = make_classification(300, 6, n_informative=6, n_redundant=0, random_state=0)
    keys, tables = np.array([f"c{number}" for number in range(300)]), {}
    for name, columns in {"server": None, "one": x[:, :3], "two": x[:, 3:]}.items():
        some = draws.permutation(300)[:270]
        own = {"target": y[some]} if columns is None else dict(zip("abc", columns[some].T, strict=True))
        tables[name] = pd.DataFrame({"case": keys[some], **own})
    run = colonnade.simulate(
        {
            "federation": {"id": "cases", "protocol": "split", "batch": 32, "epochs": 2, "classes": 2, "align": "psi",
                           "keys": {"seeded": True}},
            "server": {"labels": {"key": "case", "label": "target"}},
            "every_party": {"data": {"key": "case"}, "capture": {}},
        },
        tables, out=tmp_path / "run",
    )  # fmt: skip
    opened = open_run(run.folder, aligned=True)
    common = set.intersection(*(set(table["case"]) for table in tables.values()))
    assert len(opened.labels) == len(common) < 270
    joined = tables["server"].iloc[opened.sample]["case"].tolist()
    assert set(joined) == common and opened.labels.tolist() == [int(y[int(key[1:])]) for key in joined]
    place = {key: number for number, key in enumerate(keys)}
    own = torch.from_numpy(x[[place[key] for key in joined], 3:]).float()
    assert (
        torch.corrcoef(torch.stack([own[:, 0], opened.columns("two")[torch.arange(len(joined))][:, 0]]))[0, 1] > 0.999
    )  # scaled, of these rows
    code, said = command(monkeypatch, capfd, "attack", run.folder, "--kind", "labels")
    assert code == 0, said
    best = json.loads((run.folder / "attacks" / "labels.json").read_text())["parties"]["one"]["best"]
    assert best["accuracy"] > 0.95 > best["chance"] + 0.2
    code, said = command(monkeypatch, capfd, "attack", run.folder, "--kind", "inversion")
    assert code == 2 and "this attack needs tables whose rows are in the same order" in said
