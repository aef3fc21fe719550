"""Protocols over sums that the server learns without their parts: the same run as in the clear, with hidden parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.aggregation.masks import Blinder
from colonnade.common.aggregation.messages import RECOVERY, Masked, Members, SetProof, SetProofs
from colonnade.common.aggregation.summed_sets import SetError
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Open
from colonnade.common.crypto.sealing import Agreement, SealError
from colonnade.common.errors import ContractError, InputError, PartyAway, PartyLost
from colonnade.common.messaging.outgoing import MaskedTensor, Released
from colonnade.common.privacy.sum_noise import ring
from colonnade.common.run.run_cache import RunCache
from colonnade.simulation.federation import Simulation
from tests.support.altered_lines import change_each, replace_each
from tests.support.federation import Outcome, config, federate, late, parameters

pytestmark = pytest.mark.slow

BLIND: dict[str, dict[str, Any]] = {
    "vimadmm_j": {"name": "vimadmm_j", "embedding": 8, "tau": 3, "update": "signal"},
    "fdml": {"name": "fdml", "embedding": 8},
    "split_avg": {"name": "split_avg", "embedding": 8},
}
WIDTHS = {"vimadmm_j": 10, "fdml": 10, "split_avg": 8}
LATE = ("federation.quorum={need: 3, grace: 0.2}", "federation.evaluate.every=99")
every = pytest.mark.parametrize("name", BLIND)
every_and_wide = pytest.mark.parametrize(("name", "bits"), [*((name, 32) for name in BLIND), ("fdml", 64)])


def run(name: str, *sets: str, aggregate: str = "blinded", **how: Any) -> Outcome:
    short = ("federation.rounds=4", "federation.epochs=0", "federation.batch=400")
    return federate(config({**BLIND[name], "aggregate": aggregate}, *short, *sets), **how)


def said(outcome: Outcome, kind: type, sender: str | None = None) -> list[Any]:
    """Messages of a kind in order, of one sender or of all."""
    return [m for by, _, m in outcome.messages if isinstance(m, kind) and sender in (None, by)]


def sets_of(outcome: Outcome) -> dict[int, list[int]]:
    """Sets of every round, as sent to its parties."""
    return {m.round: m.members.tolist() for m in said(outcome, Members)}


# The server's view.


@every_and_wide
def test_it_ends_as_in_the_clear_but_for_rounding(name: str, bits: int) -> None:
    blind, clear = run(name, f"federation.blinding.bits={bits}"), run(name, aggregate="clear")
    for member, values in parameters(clear).items():
        torch.testing.assert_close(parameters(blind)[member], values, atol=1e-4, rtol=1e-3)
    assert blind.server.metrics == pytest.approx(clear.server.metrics, abs=2e-3)


@every
def test_a_sum_is_that_of_the_clear_within_the_rings_error_and_no_part_is_to_be_seen(name: str) -> None:
    """Added up by Python's integers, and read as fixed point by hand."""
    clear, outcome = run(name, aggregate="clear"), run(name)
    over, first = ring(outcome.server.federation), [m for m in said(outcome, Masked) if (m.round, m.stage) == (1, 0)]
    parts = [m.h if name == "split_avg" else m.o for m in said(clear, CONTRACTS[name].messages[0]) if m.round == 1]
    assert len(first) == len(parts) == 4
    total = sum(m.words.long() % 2**32 for m in first) % 2**32
    assert not total[-1].any()  # masked zeros
    total = total[:-1]
    total = torch.where(total < 2**31, total, total - 2**32).double() / over.scale
    exact = torch.stack(parts).double().sum(0)
    assert (total - exact).abs().max() <= over.error
    for message, part in zip(first, parts, strict=True):
        assert (message.words[:-1] == over.encode(part)).double().mean() < 0.01


@every
def test_the_learned_model_is_the_same_under_fresh_masks(name: str) -> None:
    one, two = run(name), run(name)
    assert all(torch.equal(values, parameters(two)[member]) for member, values in parameters(one).items())
    assert not any(torch.equal(a.words, b.words) for a, b in zip(said(one, Masked), said(two, Masked), strict=True))


@every_and_wide
def test_only_declared_messages_with_exactly_the_declared_bytes(name: str, bits: int) -> None:
    outcome = run(name, "federation.evaluate.every=4", f"federation.blinding.bits={bits}")
    schedule, width = outcome.server.schedule, WIDTHS[name]
    trained = [len(schedule.batch(t)) for t in range(1, 5)]
    evaluated = [len(block) for part in ("validation", "test") for block in schedule.blocks(part)]
    unused = {"Logits", "Embedding", "Evaluation", "Gradient", "Update", "Targets", "Beliefs", "SetProof", "SetProofs"}
    unused |= {kind.__name__ for kind in RECOVERY}
    for party in outcome.clients:
        mine = [m for by, to, m in outcome.messages if party in (by, to)]
        assert {type(m).__name__ for m in mine} == {kind.__name__ for kind in CONTRACTS[name].messages} - unused
        sent = said(outcome, Masked, party)
        assert [m.words.nbytes for m in sent] == [(rows + 1) * width * bits // 8 for rows in trained + evaluated]
        assert [(m.round, m.stage) for m in sent] == [*((t, 0) for t in range(1, 5)), *((4, s) for s in (1, 2))]
        assert [m.members.nbytes for m in mine if isinstance(m, Members)] == [4] * 4


# Late parties.


def slow(party: str, rounds: range, seconds: float = 3.0) -> Callable[[str, str, object], float]:
    """Every message takes half a second; a party's messages of some rounds take longer."""

    def delay(sender: str, _to: str, item: object) -> float:
        late = sender == party and isinstance(item, Masked) and item.round in rounds
        return seconds if late else 0.5

    return delay


@every
@pytest.mark.parametrize("absence", ["rollback", "continue"])
def test_a_straggler_rests_and_comes_back(name: str, absence: str) -> None:
    """Its round has no sum; the next two go over the others."""
    more = (*LATE, "federation.rounds=9", f"federation.absence={absence}")
    outcome = run(name, *more, delay=slow("party4", range(2, 3)))
    assert [(e["round"], e["party"]) for e in outcome.of_kind("abandoned")] == [(2, "party4")]
    assert [(e["round"], e["answers"]) for e in outcome.of_kind("skipped")] == [(2, 3)]
    without = [round for round, members in sets_of(outcome).items() if members == [1, 1, 1, 0]]
    assert without == [3, 4] and sets_of(outcome)[9] == [1, 1, 1, 1]
    assert [e["round"] for e in outcome.of_kind("missing")] == [2, 3, 4]
    losses = {e["round"]: e["loss"] for e in outcome.of_kind("round") if "loss" in e}
    assert 2 not in losses and losses[9] < losses[1]


def test_the_pause_of_a_repeatedly_failing_party_doubles() -> None:
    outcome = run("fdml", *LATE, "federation.rounds=20", delay=slow("party4", range(2, 99), 1e4))
    assert [e["round"] for e in outcome.of_kind("abandoned")] == [2, 5, 10, 19]


def test_a_server_that_is_slow_to_say_the_set_loses_a_party_for_a_while_and_no_more() -> None:
    def delay(_sender: str, to: str, _item: object) -> float:
        return 2.0 if to == "party4" else 0.1

    outcome = run("fdml", *LATE, "federation.rounds=12", delay=delay)
    assert {e["party"] for e in outcome.of_kind("abandoned")} == {"party4"}
    assert 0 < outcome.late["party4"] <= len(outcome.of_kind("abandoned"))
    assert once_each(outcome)


def test_an_evaluation_without_a_sum_is_given_up() -> None:
    def delay(sender: str, _to: str, item: object) -> float:
        return 1e4 if sender == "party2" and isinstance(item, Masked) and item.stage == 2 else 0.1

    outcome = run("fdml", "federation.quorum={need: 3, grace: 1}", delay=delay)
    assert outcome.of_kind("warning")[-1]["reason"] == (
        "round 4: no evaluation of the test rows, since a party did not answer"
    )
    assert "test_accuracy" not in outcome.server.metrics and "val_accuracy" in outcome.server.metrics


def test_a_party_that_all_wait_for_ends_the_run() -> None:
    with pytest.raises(PartyLost, match="party4 was lost: no Masked for round 2 within 60 s"):
        run("fdml", delay=slow("party4", range(2, 3), 1e4))


# A server that lies.


def once_each(outcome: Outcome) -> bool:
    """True if no party sent two messages of one round and stage."""
    sent = Counter((by, m.round, m.stage) for by, _, m in outcome.messages if isinstance(m, Masked))
    return set(sent.values()) == {1}


def lying(party: str, round: int, *tells: list[int]) -> Callable[[Any], None]:
    """Sends a party these sets in place of a round's own."""

    def lie(item: object) -> list[object]:
        if not isinstance(item, Members) or item.round != round:
            return [item]
        return [replace(item, members=torch.tensor(members, dtype=torch.uint8)) for members in tells]

    return lambda cohort: replace_each(cohort[party], lie)


def test_a_second_set_of_the_same_round_gets_no_second_response() -> None:
    sets = lying("party1", 2, [1, 1, 1, 1], [1, 1, 1, 0])
    outcome = run("fdml", "federation.transcript.every=0", on_cohort=sets)  # else the parties find the second set
    assert once_each(outcome)
    assert [m.stage for m in said(outcome, Masked, "party1") if m.round == 2] == [0]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ([0, 1, 1, 1], r"server sent Members\.members: expected party1 among them, got it is not"),
        (
            [1, 1, 0, 0],
            r"Members\.members: expected at least 3 parties, as federation\.quorum and blinding have it, got 2",
        ),
        ([1, 0, 0, 0], r"expected at least 3 parties"),
        ([1, 1, 1], r"server sent Members\.members: expected parties = 4 in dimension 0"),
    ],
    ids=["without us", "too few", "us alone", "of another roster"],
)
def test_a_set_that_hides_too_little_is_refused(members: list[int], error: str) -> None:
    sent: list[object] = []

    def watch(sender: str, _to: str, item: object) -> float:
        sent.extend([item] if isinstance(item, Masked) and sender == "party1" and item.round == 2 else [])
        return 0.0

    with pytest.raises(ContractError, match=error):
        run("fdml", *LATE, delay=watch, on_cohort=lying("party1", 2, members))
    assert sent == []


def test_a_party_answers_for_no_smaller_set_if_every_round_waits_for_all() -> None:
    """A server cannot pretend that a party is absent, to derive its values from two sums."""
    with pytest.raises(ContractError, match=r"expected at least 4 parties, as federation\.quorum .*, got 3"):
        run("fdml", on_cohort=lying("party1", 2, [1, 1, 1, 0]))


def test_a_server_that_shows_two_sets_is_refused_before_anything_is_sent() -> None:
    sent: list[object] = []

    def watch(_sender: str, _to: str, item: object) -> float:
        sent.extend([item] if isinstance(item, Masked) and item.round == 2 else [])
        return 0.0

    with pytest.raises(SetError, match=r"^party[1-4] does not confirm that round 2 sums over party1, party2, party3"):
        run("fdml", *LATE, delay=watch, on_cohort=lying("party1", 2, [1, 1, 1, 0]))
    assert sent == []


@pytest.mark.parametrize("alter", [lambda proofs: proofs ^ 1, torch.zeros_like], ids=["altered", "withheld"])
def test_a_server_that_alters_a_confirmation_is_refused(alter: Callable[[Tensor], Tensor]) -> None:
    def lie(item: object) -> object:
        return replace(item, proofs=alter(item.proofs)) if isinstance(item, SetProofs) and item.round == 2 else item

    with pytest.raises(SetError, match="party1 does not confirm that round 2 sums over party1, party2, party3, party4"):
        run("fdml", *LATE, on_cohort=lambda cohort: change_each(cohort["party2"], lie))


def test_confirmations_have_exactly_the_declared_bytes() -> None:
    outcome = run("fdml", *LATE)
    for kind in (SetProof, SetProofs):
        sent = said(outcome, kind)
        assert [m.round for m in sent] == [t for t in range(1, 5) for _ in range(4)]
        assert {m.proofs.nbytes for m in sent} == {4 * 32}


def test_a_party_that_does_not_confirm_in_time_loses_the_round_and_rests() -> None:
    delay = late("party4", SetProof, seconds=3.0, rounds=(2,), others=0.5)
    outcome = run("fdml", *LATE, "federation.rounds=9", delay=delay)
    assert [(e["round"], e["party"]) for e in outcome.of_kind("abandoned")] == [(2, "party4")]
    assert not [m for m in said(outcome, Masked) if m.round == 2]
    assert [round for round, members in sets_of(outcome).items() if members == [1, 1, 1, 0]] == [3, 4]


# State over restarts.


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> dict[str, RunCache]:
    """What members keep over the simulations of this test; all are starts of the same run."""
    kept: dict[str, RunCache] = {}
    monkeypatch.setattr(Simulation, "__init__", partialmethod(Simulation.__init__, caches=kept))
    return kept


def test_a_run_that_goes_back_goes_over_the_same_sets_and_ends_the_same(disks: dict[str, RunCache]) -> None:
    """The straggler is as quick as the others the second time: it is still left out."""
    more = (*LATE, "federation.rounds=8")
    before = run("fdml", *more, delay=slow("party4", range(2, 3)), save=True)
    after = run("fdml", *more, start=(2, before.saved[2]))
    again = {round: members for round, members in sets_of(before).items() if round > 2}
    assert sets_of(after) == again
    assert [round for round, members in again.items() if members == [1, 1, 1, 0]] == [3, 4]
    for member, values in parameters(before).items():
        assert torch.equal(values, parameters(after)[member])


@pytest.mark.parametrize("how", ["silent", "away"])
def test_rounds_that_were_done_with_a_party_that_is_gone_are_given_up(disks: dict[str, RunCache], how: str) -> None:
    more = (*LATE, "federation.rounds=40")
    before = run("fdml", *LATE, save=True)
    cohort: list[Any] = []

    def gone(sender: str, to: str, item: object) -> float:
        if how == "away" and to == "party4" and item == Open(4):
            cohort[0]["party4"].lose(PartyAway("party4", "its connection broke"))
        return 1e6 if sender == "party4" and isinstance(item, Masked) else 0.0

    after = run("fdml", *more, start=(3, before.saved[3]), delay=gone, on_cohort=cohort.append)
    skipped = [e["round"] for e in after.of_kind("skipped")]
    assert skipped[:29] == list(range(4, 33)) and len(skipped) < 33  # up to 32 they may have been done
    assert sets_of(after)[40] == [1, 1, 1, 0]
    assert (4 in sets_of(after)) == (how == "silent")  # no request to a party known to be absent


def test_a_party_sends_nothing_for_a_round_that_it_has_done_over_another_set(disks: dict[str, RunCache]) -> None:
    """The server has forgotten: without its record it acts like one that lies."""
    before = run("fdml", *LATE, delay=slow("party4", range(2, 3)), save=True)
    del disks[SERVER]
    after = run("fdml", *LATE, start=(2, before.saved[2]))
    answers = [m for m in said(after, Masked) if m.round in (3, 4) and len(m.words)]
    assert answers == [] or {by for by, _, m in after.messages if m in answers} == {"party4"}
    refusals = [e["reason"] for e in after.of_kind("warning") if e["party"] == "party1"]
    assert "round 3 may have been summed over party1, party2, party3: nothing is sent" in refusals[0]
    assert [e["round"] for e in after.of_kind("skipped")] == [3, 4]


# A party that cheats, or fails.


def test_a_key_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    offer = Agreement.offer

    def zeros(self: Agreement) -> Any:
        made = offer(self)
        return replace(made, key=bytes(32)) if self._name == "party2" else made

    monkeypatch.setattr(Agreement, "offer", zeros)
    with pytest.raises(SealError, match="party2"):
        run("fdml")


def test_masks_that_do_not_cancel_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = Blinder.blind

    def noise(self: Blinder, words: Tensor, round: int, *more: Any) -> MaskedTensor:
        far = torch.randint(-(2**31), 2**31, words.shape) if (self._name, round) == ("party2", 3) else 0
        return MaskedTensor((blind(self, words, round, *more) + far).to(words.dtype), "blinded", summed=True)

    monkeypatch.setattr(Blinder, "blind", noise)
    with pytest.raises(
        ContractError, match=r"expected masks that cancel, over party1, .*, got a sum of zeros that is not 0"
    ):
        run("fdml")


def test_values_beyond_the_bound_are_clipped_with_one_warning() -> None:
    outcome = run("fdml", "federation.blinding.bound=0.01")
    warned = Counter(e["party"] for e in outcome.of_kind("warning") if "was clipped to" in e["reason"])
    assert warned == dict.fromkeys(outcome.clients, 1)


def test_non_finite_values_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = lambda _self, private, **_: Released(private / 0 * 0, "none", None)  # noqa: E731
    monkeypatch.setattr("colonnade.client.privacy.egress.Egress.release", nan)
    with pytest.raises(InputError, match="a number is not finite and has no word"):
        run("fdml")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: replace(m, stage=7), r"party2 sent Masked\.stage: expected 0, got 7"),
        (lambda m: replace(m, words=m.words[1:]), r"party2 sent Masked\.words: expected lines = 401 in dimension 0"),
        (lambda m: replace(m, words=m.words[:, 1:]), r"party2 sent Masked\.words: expected words = 10 in dimension 1"),
    ],
    ids=["stage", "rows", "words"],
)
def test_words_of_another_shape_or_stage_are_refused(change: Callable[[Masked], Masked], error: str) -> None:
    def alter(cohort: Any) -> None:
        deliver = cohort["party2"].deliver
        cohort["party2"].deliver = lambda item: deliver(
            change(item) if isinstance(item, Masked) and item.round == 3 else item
        )

    with pytest.raises(ContractError, match=error):
        run("fdml", on_cohort=alter)


# Privacy.


def test_noise_is_inside_the_blinding_and_costs_the_same() -> None:
    """Two mechanisms around one value: it is clipped and noised, paid for, and then hidden."""
    private = ("federation.privacy={clip: 3, noise_multiplier: 0.1, seeded: true}",)
    blind, clear = run("vimadmm_j", *private), run("vimadmm_j", *private, aggregate="clear")
    for name, privacy in clear.privacy.items():
        assert blind.privacy[name].releases == privacy.releases > 4
        torch.testing.assert_close(parameters(blind)[name], parameters(clear)[name], atol=1e-4, rtol=1e-3)
