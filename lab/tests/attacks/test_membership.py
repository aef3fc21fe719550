"""Membership inference on revealed membership, on none, and on a small overfitted federation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from colonnade.common.data.rows import generator
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.run.checkpoints import Checkpoints
from colonnade_lab.attacks.membership import (
    Candidates,
    candidates,
    delta_of,
    infer_members,
    judged,
    own_classifier,
    signals,
    tell_apart,
)
from colonnade_lab.attacks.predictions import predicted
from colonnade_lab.attacks.rows import FieldRecords, gathered, pieces
from colonnade_lab.attacks.run import AttackedRun, open_run
from colonnade_lab.attacks.simulated import like, pool, shadows
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow

SMALL = (
    "federation.rows={train: 200, validation: 0, test: 200}",
    "federation.batch=100",
    "federation.epochs=60",
    "every_party.optimiser={name: sgd, lr: 0.05}",
    "server.optimiser={name: sgd, lr: 0.1}",
)


def noise(*shape: int, about: object = 0) -> Tensor:
    return torch.randn(shape, generator=generator("noise", about), dtype=torch.float64)


def made_up(shift: float, about: object, rows: int = 600) -> Candidates:
    """Members lie `shift` further out in one feature; a third of the rows are members."""
    member = torch.arange(rows) % 3 == 0
    features = noise(rows, 5, about=about)
    features[:, 2] += shift * member
    return Candidates(features, member, "head")


def test_planted_membership_is_found_and_none_is_found_in_noise() -> None:
    for shift, low, high in ((8.0, 0.99, 1.0), (0.0, 0.43, 0.57)):
        found = tell_apart(made_up(shift, "target"), [made_up(shift, number) for number in range(3)], 1e-5, 0)
        assert low <= found.accuracy <= high and low <= found.auc <= high
        assert found.rows == 400 and found.counts.members == found.counts.others == 200
        assert (found.least_epsilon > 3) == (shift > 0)
    assert found.least_epsilon < 0.5


def test_a_gaussian_shift_is_distinguished_optimally() -> None:
    """Two normal laws one apart: no test has more than Phi(1/2) = 69 %, and this one comes near."""
    found = tell_apart(made_up(1.0, "target", 6000), [made_up(1.0, n, 3000) for n in range(3)], 0.0, 0)
    assert 0.64 < found.accuracy < 0.71 and found.auc == pytest.approx(0.76, abs=0.03)  # Phi(1 / sqrt 2)


def test_balancing_draws_as_many_of_either_kind() -> None:
    made = made_up(0.0, 1)
    even = made.balanced(3)
    assert even.member.sum() == 200 and len(even.member) == 400
    assert len(torch.unique(even.features, dim=0)) == 400


def test_signals_match_their_names() -> None:
    probabilities = torch.tensor([[0.7, 0.1, 0.2], [0.0, 1.0, 0.0]], dtype=torch.float64)
    parts = [torch.tensor([[3.0, 4.0], [0.0, 1.0]])]
    (first, second) = signals(probabilities, torch.tensor([2, 1]), parts).tolist()
    assert first[:3] == pytest.approx([math.log(p) for p in (0.7, 0.2, 0.1)])
    assert first[3] == pytest.approx(-math.log(0.2)) and second[3] == pytest.approx(0)
    assert first[4] == pytest.approx(-sum(p * math.log(p) for p in (0.7, 0.1, 0.2))) and second[4] == pytest.approx(0)
    assert first[5] == pytest.approx(-second[5]) and first[5] == pytest.approx(math.sqrt(0.5))  # 5 and 1, standardised


def test_a_classifier_of_its_own_has_not_seen_the_rows_that_it_judges() -> None:
    """With random labels, a classifier trained on the judged rows would be nearly always right."""
    labels = torch.randint(0, 3, (90,), generator=generator("labels"))
    probabilities = own_classifier(noise(90, 80), labels, 4)
    assert probabilities.shape == (90, 4) and (probabilities[:, 3] == 0).all()
    torch.testing.assert_close(probabilities.sum(1), torch.ones(90, dtype=torch.float64))
    assert (probabilities.argmax(1) == labels).double().mean() < 0.6


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory: pytest.TempPathFactory) -> AttackedRun:
    return captured(tmp_path_factory.mktemp("overfitted"), SPLIT, *SMALL)


def test_the_server_predicts_as_in_its_run(overfitted: AttackedRun) -> None:
    """The mean loss of the test rows, by the restored head on captured embeddings, is that of the summary."""
    found = candidates(overfitted)
    assert found.by == "head" and len(found.member) == 400 and int(found.member.sum()) == 200
    losses = found.features[:, 10]
    assert losses[~found.member].mean().item() == pytest.approx(overfitted.summary["metrics"]["test_loss"], rel=1e-5)
    assert losses[found.member].mean() < 0.3 * losses[~found.member].mean()


def test_shadows_have_rows_of_their_own_and_are_trained_alike(overfitted: AttackedRun) -> None:
    own = pool(overfitted)
    part = overfitted.schedule.partition
    used = {*part.train.tolist(), *part.test.tolist()}
    assert own.source == "rows that the run did not use" and own.train == 200 and not used & set(own.rows.tolist())
    first, second = shadows(overfitted, own, 2, 0)
    for shadow in (first, second):
        assert shadow.sample is not None and len(set(shadow.sample.tolist())) == 400
        assert not used & set(shadow.sample.tolist())
        assert torch.equal(shadow.labels, overfitted.labels[shadow.sample])
        assert shadow.config.federation.epochs == 60 and len(shadow.schedule.partition.train) == 200
    assert not torch.equal(first.sample, second.sample)  # type: ignore[arg-type]
    assert not first.folder.exists()


def test_an_overfitted_federation_betrays_its_members(overfitted: AttackedRun) -> None:
    known = [candidates(shadow) for shadow in shadows(overfitted, pool(overfitted), 2, 0)]
    assert tell_apart(candidates(overfitted), known, 1e-5, 0).auc > 0.56


def test_an_underfitted_model_reveals_no_members(tmp_path: Path) -> None:
    """Its parameters still move fast: embeddings of members from training time would reveal them by their age."""
    run = captured(tmp_path, SPLIT, *SMALL, "federation.epochs=2")
    known = [candidates(shadow) for shadow in shadows(run, pool(run), 2, 0)]
    assert 0.4 < tell_apart(candidates(run), known, 1e-5, 0).accuracy < 0.6


def test_shadows_take_held_out_rows_if_all_others_are_used(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, "federation.rows={validation: 200, test: 300}", "federation.epochs=1")
    own, part = pool(run), run.schedule.partition
    assert own.source == "its validation and test rows" and own.train == 250
    assert set(own.rows.tolist()) == {*part.validation.tolist(), *part.test.tolist()}
    few = captured(tmp_path / "few", SPLIT, "federation.rows={validation: 0, test: 30}", "federation.epochs=1")
    with pytest.raises(InputError, match="30 rows are left that the run did not train on, shadows need 40"):
        pool(few)


def test_a_shadow_is_like_its_target_but_for_rows_seed_and_faults(overfitted: AttackedRun) -> None:
    made, federation = like(overfitted.config, 50, 7), overfitted.config.federation
    assert (made.federation.rows.train, made.federation.rows.test, made.federation.batch) == (50, 50, 50)
    differing = {key for key, value in made.federation if value != getattr(federation, key)}
    assert differing == {"rows", "seed", "batch"}
    assert made.parties["party1"].model == overfitted.config.parties["party1"].model


def test_rows_of_batches_that_are_not_full_are_left_out_where_there_are_full_ones(tmp_path: Path) -> None:
    """If messages are clipped as a whole, a row of a small one is larger: that would reveal parts, not members."""
    for name in ("split", "linear_admm"):
        sets = ("federation.rows={train: 250, validation: 0, test: 330}", "federation.batch=100")
        found = candidates(captured(tmp_path / name, {"name": name}, *sets))
        assert (int(found.member.sum()), int((~found.member).sum())) == (200, 300)


@pytest.mark.parametrize(
    ("protocol", "by"),
    [
        ({"name": "vafl", "embedding": 8, "arrivals": True}, "head"),
        ({"name": "vimadmm", "embedding": 8, "tau": 2}, "head"),
        ({"name": "czofo", "embedding": 8, "directions": 2}, "head"),
        ({"name": "zoo_vfl", "embedding": 8}, "head"),
        ({"name": "fdml", "embedding": 8}, "head"),
        ({"name": "fdml", "embedding": 8, "aggregate": "blinded"}, "head"),
        ({"name": "fedvs", "embedding": 8}, "head"),
        ({"name": "linear_admm"}, "head"),
        ({"name": "centralized"}, "classifier"),
        ({"name": "vfedmh", "embedding": 8}, "classifier"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_other_protocols_are_opened_too(tmp_path: Path, protocol: dict[str, object], by: str) -> None:
    found = candidates(captured(tmp_path, protocol, *SMALL[:2], "federation.epochs=2"))
    assert found.by == by and torch.isfinite(found.features).all() and 0 < found.member.sum() < len(found.member)
    shown = 0 if protocol["name"] == "fedvs" or protocol.get("aggregate") == "blinded" else 4
    assert found.features.shape[1] == 12 + shown  # of sums no party's part is seen


def test_checkpoints_of_all_members_are_needed(tmp_path: Path) -> None:
    run = captured(tmp_path, SPLIT, *SMALL[:2], "federation.epochs=1")
    for folder, member in ((tmp_path, "server"), (tmp_path / "parties" / "party3", "party3")):
        Checkpoints(folder / "checkpoints").prune(())
        with pytest.raises(CheckpointError, match=f"holds no whole checkpoint of {member}"):
            candidates(run)


def test_messages_of_all_parties_are_needed_if_a_model_cannot_be_opened(tmp_path: Path) -> None:
    run = captured(tmp_path, {"name": "centralized"}, "federation.epochs=1")
    (tmp_path / "parties" / "party3" / "capture-evaluations.bin").unlink()
    with pytest.raises(InputError, match="party3: nothing was captured that has a line for every row"):
        candidates(run)
    (tmp_path / "parties" / "party3" / "capture.bin").unlink()
    with pytest.raises(InputError, match="party3: captured nothing"):
        candidates(open_run(tmp_path))


def test_predictions_are_those_sent_in_the_last_evaluation(overfitted: AttackedRun) -> None:
    """Nothing is protected: the parties' outputs for test rows are in their captures, bit by bit."""
    rows, parts = predicted(overfitted)
    held = torch.isin(rows, overfitted.schedule.partition.test)
    for name, part in zip(overfitted.config.federation.names, parts, strict=True):
        about = pieces(overfitted.schedule, overfitted.evaluations(name))
        sent = gathered(about, "out", FieldRecords)[0]["Evaluation.h"].newest()
        order = rows[held].argsort()
        assert torch.equal(sent[0], rows[held][order]) and torch.equal(sent[1], part[held][order])


def test_predictions_are_noised_and_rounded_as_in_the_run(tmp_path: Path) -> None:
    """Under noise of sigma C = 2 on entries of up to .01, the outputs for any rows are noise of 2."""
    private = "federation.privacy={clip: 0.1, noise_multiplier: 20, delta: 1.0e-5}"
    run = captured(tmp_path, SPLIT, *SMALL[:2], private, "federation.compress={up: 1}", "federation.epochs=1")
    rows, parts = predicted(run)
    for part in parts:
        assert all(len(block.unique()) == 2 for block in part.split(100))
    private_alone = captured(tmp_path / "whole", SPLIT, *SMALL[:2], private, "federation.epochs=1")
    for part in predicted(private_alone)[1]:
        assert part[: len(rows) // 2].std().item() == pytest.approx(2, rel=0.1)
        assert part[len(rows) // 2 :].std().item() == pytest.approx(2, rel=0.1)


def test_delta_is_the_claims() -> None:
    assert delta_of({"delta": 1e-3}) == 1e-3 and delta_of({"delta": None}) == delta_of({}) == 1e-5


def test_rows_that_are_protected_each_by_itself_are_asked_for_with_their_noise(tmp_path: Path) -> None:
    run = captured(tmp_path, {"name": "vfl_afe", "embedding": 10}, "federation.epochs=1")
    rows, parts = predicted(run)
    local, columns = run.local("party1")
    with torch.no_grad():
        noise = parts[0] - local(columns[rows])
    assert float(noise.std()) == pytest.approx(2 * 0.05, rel=0.02)
    assert abs(float(noise.mean())) < 0.01


SETS = (
    "federation.rows={train: 150, validation: 0, test: 150}", "federation.batch=50",
    "server.head={name: mlp, hidden: 64, dropout: 0}", "every_party.model={name: mlp, hidden: 64}",
)  # fmt: skip
NOISED = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 5, delta: 1e-4}"


def test_what_is_usual_for_a_row_tells_more_than_confidence_alone() -> None:
    draws = generator("scores")
    member = torch.arange(2000) % 2 == 0
    hard, lead = 5 * torch.randn(2000, generator=draws), torch.randn(2000, generator=draws) + 2.0 * member
    found = judged((hard + lead).double(), lead.double(), member, torch.arange(2000), 1e-5)
    assert found.area.auc > 0.9 > 0.65 > found.baseline.auc
    assert found.least_epsilon > 1 and found.interval[0] < found.hits < found.interval[1] and found.hits > 0.2
    nothing = judged(hard.double(), hard.double(), member, torch.arange(2000), 1e-5)
    assert abs(nothing.area.auc - 0.5) < 0.04 and nothing.hits < 0.03 and nothing.least_epsilon < 0.4


def test_a_run_that_knows_its_rows_is_found_and_noise_is_not(tmp_path: Path) -> None:
    clear, noised = (
        infer_members(run, shadows(run, pool(run), 2, 0), 1e-5, 0)
        for more, epochs in (((), 60), ((NOISED,), 5))
        for run in [captured(tmp_path / str(epochs), {"name": "split", "embedding": 16}, *SETS,
                             f"federation.epochs={epochs}", *more)]
    )  # fmt: skip
    assert clear.area.interval[0] > 0.53 and clear.baseline.interval[0] > 0.53
    assert noised.area.auc < 0.6 and noised.least_epsilon < 0.5
