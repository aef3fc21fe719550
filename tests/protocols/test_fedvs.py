"""FedVS against the integers: the decoded sum is the quantised sum, for any set of responses."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.client.aggregation.coded import CodedParty
from colonnade.client.privacy.egress import Egress
from colonnade.common.aggregation import fixed_point
from colonnade.common.aggregation.lagrange import CodedRows, LagrangeCode
from colonnade.common.aggregation.messages import SetProof, SetProofs
from colonnade.common.crypto.lengths import OVERHEAD
from colonnade.common.errors import ContractError, PartyLost
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.protocols.fedvs import (
    CONTRACT,
    Answer,
    Bundle,
    Gradient,
    Opened,
    Preparation,
    Senders,
    Shares,
    hash_of,
)
from colonnade.server.aggregation.coded import CodedSums
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome, config, federate, parameters

pytestmark = pytest.mark.slow

FEDVS = {"name": "fedvs", "embedding": 8, "segments": 2, "chunk": 400}
NETWORKS = (
    "federation.parties=7",
    "federation.rounds=3",
    "federation.epochs=0",
    "every_party.data.scale=unit",
    "every_party.model={name: polynomial, layers: 2}",
    "every_party.optimiser={name: adam, lr: 0.03}",
    "server.optimiser={name: adam, lr: 0.01}",
)
LATE = ("federation.quorum={fastest: 6}", "parties.party4.chaos.delay={Shares: 5s}")


def run(*sets: str, protocol: dict[str, Any] | None = None, **how: Any) -> Outcome:
    return federate(config({**FEDVS, **(protocol or {})}, *NETWORKS, *sets), **how)


@dataclass
class Watched:
    """Internal values: rounded weights by party and stage, and every decoded block."""

    weights: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=lambda: defaultdict(dict))
    decoded: list[tuple[int, int, int, Tensor, Tensor]] = field(default_factory=list)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen, stage_of = Watched(), {}
    share, rounded, decode = CodedParty.share, CodedParty.round_weights, CodedSums.decode

    async def share_and_note(self: CodedParty, round: int, stage: int, coded: int):
        stage_of[self._ctx.name] = (round, stage)
        return await share(self, round, stage, coded)

    def round_and_note(self: CodedParty) -> Tensor:
        weights = rounded(self)
        seen.weights[stage_of[self._ctx.name]][self._ctx.name] = weights
        return weights

    async def decode_and_note(self: CodedSums, round: int, stage: int, number: int, coded: int, senders: Tensor):
        average, answers = await decode(self, round, stage, number, coded, senders)
        seen.decoded.append((round, stage, number, senders, average))
        return average, answers

    monkeypatch.setattr(CodedParty, "share", share_and_note)
    monkeypatch.setattr(CodedParty, "round_weights", round_and_note)
    monkeypatch.setattr(CodedSums, "decode", decode_and_note)
    return seen


def assert_exact(outcome: Outcome, seen: Watched) -> None:
    """Every decoded block is the sum of the members' quantised products, as Python's integers have it."""
    federation = outcome.server.federation
    cfg, names = federation.protocol, federation.names
    code = LagrangeCode.of(cfg.code(len(names)))
    rows = CodedRows(outcome.server.schedule.partition, code.segments, federation)
    assert seen.decoded
    for round, stage, number, senders, average in seen.decoded:
        parts = outcome.server.schedule.evaluations(round)
        block = [b for part in parts for b in rows.blocks(part)][number] if stage else rows.training(round)
        total = 0
        for name, is_in in zip(names, senders.tolist(), strict=True):
            if is_in:
                ctx = outcome.clients[name]
                powers = ctx.state["model"].powers(ctx.features[block.rows[block.real]]).double()
                data = torch.floor(powers * 2**cfg.data_bits + 0.5).long()
                total = total + data @ fixed_point.from_field(code.field, seen.weights[round, stage][name])
        expected = total.double() / 2 ** (cfg.data_bits + cfg.weight_bits) / len(names)
        assert torch.equal(average[block.real], expected.float())


@pytest.mark.parametrize(
    "protocol",
    [{}, {"segments": 1, "masks": 2}, {"prime": 67108859, "data_bits": 4, "weight_bits": 8}, {"masked_answers": False}],
)
def test_the_decoded_sum_is_the_quantised_sum_to_the_last_bit(watched: Watched, protocol: dict[str, Any]) -> None:
    assert_exact(run(protocol=protocol), watched)


def test_networks_of_different_depth_and_shuffled_rows(watched: Watched) -> None:
    outcome = run("parties.party2.model={name: polynomial, layers: 3}", "federation.shuffle=true")
    assert len(outcome.clients["party2"].state["model"].weight) > len(outcome.clients["party1"].state["model"].weight)
    assert_exact(outcome, watched)


def test_with_one_segment_it_takes_the_steps_of_split_avg() -> None:
    """The same rows in the same order, but for rounding the same numbers: an oracle without any code."""
    fine = {"segments": 1, "data_bits": 10, "weight_bits": 14}
    coded = run("federation.rounds=8", protocol=fine)
    plain = federate(config({"name": "split_avg", "embedding": 8}, *NETWORKS, "federation.rounds=8"))
    for ours, theirs in zip(coded.of_kind("round"), plain.of_kind("round"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=2e-3)
    assert coded.server.metrics["test_loss"] == pytest.approx(plain.server.metrics["test_loss"], abs=2e-3)


def test_masks_are_fresh_and_change_nothing() -> None:
    one, two, other = run(), run(), run("federation.seed=1")
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])
        assert not torch.equal(values, parameters(other)[name])
    boxes = [[m.boxes for _, _, m in outcome.messages if isinstance(m, Shares)] for outcome in (one, two)]
    assert not any(torch.equal(a, b) for a, b in zip(*boxes, strict=True))
    answers = [[m.h for _, _, m in outcome.messages if isinstance(m, Answer)] for outcome in (one, two)]
    assert not any(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_stragglers_are_not_waited_for_and_nothing_is_lost() -> None:
    """N = 7, K = 2, T = 1: five responses decode. Two parties take a minute; every sum has their embeddings in it."""
    slow = [f"parties.{name}.chaos.delay={{Answer: 60s}}" for name in ("party3", "party6")]
    alone, late = run(), run(*slow)
    assert late.seconds < 1
    assert {event["party"] for event in late.of_kind("missing")} == {"party3", "party6"}
    assert not late.of_kind("partial_sum")
    for name, values in parameters(alone).items():
        assert torch.equal(values, parameters(late)[name])
    assert alone.server.metrics == late.server.metrics


def test_a_round_waits_for_model_shares_in_proportion_to_the_segments() -> None:
    """The delays of the paper's Section 6.2: |B| is the coded batch, so that K = 2 takes twice the time of K = 1."""
    slow = ("every_party.chaos.delay={Shares: fedvs-shares}", "federation.batch=64")
    one, two = (run(*slow, protocol={"segments": k}).of_kind("round")[1]["seconds"] for k in (1, 2))
    assert two == pytest.approx(2 * one, rel=1e-4)
    assert one > 0.1


def test_three_stragglers_are_one_too_many() -> None:
    slow = [f"parties.{name}.chaos.delay={{Answer: 500s}}" for name in ("party1", "party3", "party6")]
    with pytest.raises(PartyLost, match="no Answer for round 1"):
        run(*slow, "federation.timeouts.answer=100")


def test_a_party_with_late_shares_is_left_out_and_the_sum_is_called_partial(watched: Watched) -> None:
    outcome = run(*LATE, "federation.rounds=2")
    assert [event["without"] for event in outcome.of_kind("partial_sum") if event["stage"] == 0] == [["party4"]] * 2
    assert_exact(outcome, watched)


def altered(cohort: Any) -> None:
    """Alters the share that party2 seals for party5 in round 2."""

    def carried(item: object) -> object:
        if isinstance(item, Bundle) and item.round == 2 and item.stage == 0:
            item.boxes[int(item.lengths[:1].sum()) + 20] ^= 1  # of the second party's box
        return item

    change_each(cohort["party5"], carried)


def test_a_round_with_an_altered_share_is_dropped_if_all_parties_are_required(watched: Watched) -> None:
    outcome = run(on_cohort=altered)
    assert [(event["round"], event["party"]) for event in outcome.of_kind("abandoned")] == [(2, "party2")]
    assert [event["round"] for event in outcome.of_kind("skipped")] == [2]
    assert_exact(outcome, watched)


def test_an_altered_share_is_named_and_its_sender_left_out_for_all(watched: Watched) -> None:
    outcome = run("federation.quorum={need: 6, grace: 5}", on_cohort=altered)
    (partial,) = outcome.of_kind("partial_sum")
    assert (partial["round"], partial["stage"], partial["without"]) == (2, 0, ["party2"])
    warning, selective = outcome.of_kind("warning")
    assert selective["party"] == "party2" and "the server did not pass on to party5, or altered" in selective["reason"]
    assert "round 2: what 'party2' sealed for 'party5' (model 2 0) cannot be opened" in warning["reason"]
    assert_exact(outcome, watched)


@pytest.mark.parametrize(
    ("liar", "segments", "named"),
    [
        ("party1", 2, "^party1 sent"),
        ("party7", 2, "^party7 sent"),
        ("party1", 1, "^party1 sent"),
        ("party3", 3, None),
    ],
    ids=["one of the first, two beyond", "one beyond", "four beyond", "none beyond"],
)
def test_an_inconsistent_response_is_refused_and_its_party_named(
    monkeypatch: pytest.MonkeyPatch, liar: str, segments: int, named: str | None
) -> None:
    answer = CodedParty.answer

    async def lie(
        self: CodedParty, round: int, stage: int, number: int, positions: Tensor, total: Any, first: int
    ) -> None:
        if self._ctx.name == liar and round == 2:
            total.weights[0, 0] = (total.weights[0, 0] + 1) % self._code.field.p
        await answer(self, round, stage, number, positions, total, first)

    monkeypatch.setattr(CodedParty, "answer", lie)
    if named is None:
        assert len(run(protocol={"segments": segments}).of_kind("round")) == 3
        return
    with pytest.raises(ContractError, match=named + r" Answer\.h"):
        run(protocol={"segments": segments})


def test_one_response_beyond_shows_that_one_is_wrong_and_not_whose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server named the last party, whoever it was."""
    answer = CodedParty.answer

    async def lie(self: CodedParty, round: int, *which: Any) -> None:
        if self._ctx.name == "party1" and round == 2:
            which[3].weights[0, 0] = (which[3].weights[0, 0] + 1) % self._code.field.p
        await answer(self, round, *which)

    monkeypatch.setattr(CodedParty, "answer", lie)
    with pytest.raises(ContractError, match=r"^one of party1, party2, party3, party4, party5, party6 sent Answer\.h"):
        run("federation.parties=6")


def test_a_response_for_another_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.client.aggregation.coded.hash_of", lambda senders: hash_of(1 - senders))
    with pytest.raises(ContractError, match=r"Answer\.senders"):
        run()


def test_a_party_responds_for_no_smaller_set_than_its_policy_allows() -> None:
    with pytest.raises(ContractError, match=r"Senders\.senders.*at least 7 parties, as .* our policy have it"):
        run(
            "federation.quorum={fastest: 6}",
            "every_party.policy.min_parties=7",
            "parties.party4.chaos.delay={Shares: 5s}",
        )


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ({"anew": False}, r"Preparation\.sharing: expected a new one"),
        ({"columns": torch.full((7,), 9)}, r"Preparation\.columns: expected 1 to 4096 each, and 21 of ours"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(lie: dict[str, Any], error: str) -> None:
    def alter(cohort: Any) -> None:
        change_each(cohort["party1"], lambda item: replace(item, **lie) if isinstance(item, Preparation) else item)

    with pytest.raises(ContractError, match=error):
        run(on_cohort=alter)


def test_two_shares_of_one_party_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    admit_masked = Egress.admit_masked

    def twice(self: Egress, value: MaskedTensor) -> MaskedTensor:
        if value.mechanism == "model shares, sealed":
            self._carry(Shares(1, 0, value))
        return admit_masked(self, value)

    monkeypatch.setattr(Egress, "admit_masked", twice)
    with pytest.raises(ContractError, match="sent Shares: expected one a stage, got a second"):
        run()


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "not masked"])
def test_only_declared_messages_with_exactly_the_declared_bytes(masked: bool) -> None:
    protocol = {} if masked else {"masked_answers": False}
    outcome = run("federation.rounds=1", "federation.rows.validation=0", protocol=protocol)
    code = outcome.server.federation.protocol.code(7)
    rows = CodedRows(outcome.server.schedule.partition, code.segments, outcome.server.federation)
    columns = {name: len(ctx.state["model"].weight) for name, ctx in outcome.clients.items()}
    batch = rows.training(1)
    evaluated = sum(len(block.positions) for block in rows.blocks("test"))
    masks = [masked * coded * 8 * 4 for coded in (len(batch.positions), evaluated)]
    for name in outcome.clients:
        up = [m for sender, _, m in outcome.messages if sender == name]
        down = [m for _, to, m in outcome.messages if to == name]
        assert {type(m) for m in up + down} == set(CONTRACT.messages) - {SetProof, SetProofs}
        model = [m for m in up if isinstance(m, Shares) and m.round == 1]
        assert [m.boxes.nbytes for m in model] == [6 * (columns[name] * 8 * 4 + more + OVERHEAD) for more in masks]
        data = [m for m in up if isinstance(m, Shares) and m.round == 0]
        assert sum(m.boxes.nbytes for m in data) == 6 * (rows.total * columns[name] * 4 + OVERHEAD * len(data))
        received = [m for m in down if isinstance(m, Bundle) and m.round == 1]
        others = sum(count * 8 * 4 + OVERHEAD for other, count in columns.items() if other != name)
        assert [m.boxes.nbytes for m in received] == [others + 6 * more for more in masks]
        answers = [m.h.nbytes for m in up if isinstance(m, Answer)]
        assert sum(answers) == (len(batch.positions) + evaluated) * 8 * 4
        assert [m.dh.nbytes for m in down if isinstance(m, Gradient)] == [int(batch.real.sum()) * 8 * 4]
        assert len([m for m in up if isinstance(m, Opened)]) == len([m for m in down if isinstance(m, Senders)]) == 2


def pairs(share: Tensor) -> np.ndarray:
    """Every two elements in a row, as one number."""
    elements = share.numpy().astype(np.int32).ravel()
    return np.ascontiguousarray(elements[: len(elements) // 2 * 2]).view(np.uint64)


def test_the_server_is_given_ciphertext_and_coded_sums_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two elements in a row of any model share appear in what travels, at any byte."""
    shares: list[Tensor] = []
    original = CodedParty.model_shares

    def note(self: CodedParty, coded: int):
        made, sizes = original(self, coded)
        shares.extend(made)
        return made, sizes

    monkeypatch.setattr(CodedParty, "model_shares", note)
    outcome = run("federation.rounds=1")
    boxes = [m.boxes.numpy() for _, to, m in outcome.messages if isinstance(m, Shares) and to == "server"]
    sent = np.concatenate([np.ravel(box).view(np.uint8) for box in boxes])
    eights = np.concatenate([sent[at : at + (len(sent) - at) // 8 * 8].view(np.uint64) for at in range(8)])
    assert len(shares) == 7 * 7 * 2
    own = np.sort(np.concatenate([pairs(share) for share in shares]))
    assert not (own[np.searchsorted(own, eights).clip(max=len(own) - 1)] == eights).any()
