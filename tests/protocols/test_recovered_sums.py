"""Blinded sums that survive a party that vanishes in the middle of a round, and servers that lie in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.client.privacy.mechanisms import Privacy
from colonnade.common.aggregation.masks import remove_masks
from colonnade.common.aggregation.messages import (
    RECOVERY,
    Arrived,
    Masked,
    OpenedShares,
    SealedShares,
    SetProof,
    SetProofs,
)
from colonnade.common.aggregation.recovery import recover, sharing
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.errors import ConfigError, PartyAway, PartyLost
from colonnade.common.privacy.sum_noise import ring
from colonnade.common.run.run_cache import RunCache
from colonnade.server.aggregation.masked_sums import Blinded
from tests.protocols.test_blinded import BLIND, LATE, disks, every, every_and_wide, run, said, sets_of, slow
from tests.support.federation import Outcome, config, parameters
from tests.support.lying_server import lying

pytestmark = pytest.mark.real_time

__all__ = ["disks"]  # a fixture
RECOVERED = (*LATE, "federation.blinding.recovery=alone")
ALL, OTHERS = [1, 1, 1, 1], [1, 1, 1, 0]
NAMES = ["party1", "party2", "party3", "party4"]


def late(kind: type, seconds: float = 3.0, rounds: tuple[int, ...] = (2,)) -> Callable[[str, str, object], float]:
    """Messages of this kind of party4 in these rounds come too late; all others take half a second."""

    def delay(sender: str, _to: str, item: object) -> float:
        return seconds if sender == "party4" and isinstance(item, kind) and item.round in rounds else 0.5

    return delay


def same(one: Outcome, two: Outcome) -> bool:
    return all(torch.equal(values, parameters(two)[member]) for member, values in parameters(one).items())


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[int, list[str]]], None]:
    """Has the server announce these sets, by round, and else all."""

    def announce(sets: Mapping[int, list[str]]) -> None:
        monkeypatch.setattr(Blinded, "set_of", lambda _self, round: sets.get(round, NAMES))

    return announce


# What is summed.


@every_and_wide
def test_double_masks_change_no_bit_of_a_run(name: str, bits: int) -> None:
    sets = (*LATE, f"federation.blinding.bits={bits}", "federation.evaluate.every=2")
    one, two = run(name, *sets), run(name, *sets, "federation.blinding.recovery=alone")
    assert same(one, two) and one.server.metrics == two.server.metrics


@every
@pytest.mark.parametrize("kind", [Masked, SetProof], ids=["before its words", "before it confirms"])
def test_without_a_party_that_vanishes_the_sum_is_that_of_the_others(
    name: str, kind: type, announced: Callable[[Mapping[int, list[str]]], None]
) -> None:
    """To the bit that of a run in which the server never counted on it."""
    more = ("federation.rounds=9", "federation.evaluate.every=2")
    recovered = run(name, *RECOVERED, *more, delay=late(kind))
    assert not recovered.of_kind("skipped") and not recovered.of_kind("abandoned")
    assert [(e["round"], e["without"]) for e in recovered.of_kind("partial_sum")] == [(2, ["party4"])]
    assert [round for round, members in sets_of(recovered).items() if members == OTHERS] == [3, 4]
    announced(dict.fromkeys((2, 3, 4), NAMES[:3]))
    reference = run(name, *LATE, *more)
    assert same(recovered, reference) and recovered.server.metrics == reference.server.metrics


def test_a_party_that_vanishes_after_it_has_confirmed_is_in_the_sum() -> None:
    """The shares of the others are enough."""
    more = (*RECOVERED, "federation.rounds=2")
    vanished = run("fdml", *more, delay=late(OpenedShares))
    assert not vanished.of_kind("skipped") and not vanished.of_kind("partial_sum")
    assert [e["loss"] for e in vanished.of_kind("round")] == [e["loss"] for e in run("fdml", *more).of_kind("round")]


@pytest.mark.parametrize("kind", [Masked, SetProof])
def test_a_connection_that_breaks_in_the_middle_of_a_round_costs_no_round(kind: type) -> None:
    cohort: list[Any] = []

    def delay(sender: str, _to: str, item: object) -> float:
        if sender == "party4" and isinstance(item, kind) and item.round == 2:
            cohort[0]["party4"].lose(PartyAway("party4", "its connection broke"))
            return 1e4
        return 0.1

    outcome = run("fdml", *RECOVERED, "federation.absence=continue", delay=delay, on_cohort=cohort.append)
    assert [(e["round"], e["without"]) for e in outcome.of_kind("partial_sum")] == [(2, ["party4"])]
    assert not outcome.of_kind("skipped") and sets_of(outcome)[4] == OTHERS


def test_two_vanish_at_different_points_of_a_round() -> None:
    def delay(sender: str, _to: str, item: object) -> float:
        gone = {"party5": Masked, "party6": SetProof, "party7": OpenedShares}.get(sender)
        return 5.0 if gone and isinstance(item, gone) and item.round == 2 else 0.5

    sets = ("federation.parties=7", "federation.quorum={need: 4, grace: 0.2}", "federation.evaluate.every=99")
    outcome = run("fdml", *sets, "federation.blinding.recovery=alone", delay=delay)
    assert next((e["round"], e["without"]) for e in outcome.of_kind("partial_sum")) == (2, ["party5", "party6"])
    assert not outcome.of_kind("skipped")


@pytest.mark.parametrize("kind", [SetProof, OpenedShares])
def test_fewer_than_the_quorum_end_the_run_and_open_nothing(kind: type) -> None:
    def delay(sender: str, _to: str, item: object) -> float:
        return 1e4 if sender in ("party3", "party4") and isinstance(item, kind) and item.round == 2 else 0.5

    sets = ("federation.parties=5", "federation.quorum={need: 4, grace: 1}", "federation.blinding.recovery=colluding")
    with pytest.raises(PartyLost, match=f"party3 was lost: no {kind.__name__} for round 2 within 60 s"):
        run("fdml", *sets, delay=delay)


def test_an_evaluation_of_which_a_party_vanishes_is_given_up_and_nothing_is_opened_for_it() -> None:
    """Its rows are in every evaluation: docs/sums.md says why it is not recovered."""

    def delay(sender: str, _to: str, item: object) -> float:
        return 3.0 if sender == "party4" and isinstance(item, Masked) and item.stage and item.round == 2 else 0.5

    outcome = run("fdml", *RECOVERED, "federation.rounds=4", "federation.evaluate.every=2", delay=delay)
    assert [e["reason"] for e in outcome.of_kind("warning") if "no evaluation" in e["reason"]] == [
        "round 2: no evaluation of the validation rows, since a party did not answer"
    ]
    opened = [(by, m.round) for by, _, m in outcome.messages if isinstance(m, OpenedShares)]
    assert opened and len(opened) == len(set(opened))
    assert {event["round"] for event in outcome.of_kind("evaluation")} == {4}


def test_the_shares_of_later_rounds_are_sent_ahead() -> None:
    outcome = run("fdml", *RECOVERED, "federation.rounds=40", delay=late(Masked, rounds=(33,)))
    assert [(by, m.round) for by, _, m in outcome.messages if isinstance(m, SealedShares)] == [
        *((name, 1) for name in NAMES),
        *((name, 33) for name in NAMES),
    ]
    assert [e["round"] for e in outcome.of_kind("partial_sum")] == [33] and not outcome.of_kind("skipped")


def test_a_run_is_the_same_again() -> None:
    one, two = (run("fdml", *RECOVERED, "federation.rounds=6", delay=late(Masked)) for _ in range(2))
    assert same(one, two) and one.server.metrics == two.server.metrics


def test_only_declared_messages_with_exactly_the_declared_bytes() -> None:
    outcome = run("fdml", *RECOVERED)
    sizes = {SetProof: 4 * 32, SetProofs: 4 * 32, OpenedShares: 4 * 32}
    for kind, size in sizes.items():
        sent = said(outcome, kind)
        assert [m.round for m in sent] == [t for t in range(1, 5) for _ in NAMES]
        held = [m.pads if kind is OpenedShares else m.proofs for m in sent]
        assert {tensor.nbytes for tensor in held} == {size}
    assert not said(outcome, Arrived)
    named = said(run("fdml", *RECOVERED, delay=late(Masked)), Arrived)
    assert [(m.round, m.members.tolist()) for m in named] == [(2, OTHERS)] * 3
    assert {m.shares.nbytes + m.pair_keys.nbytes for m in said(outcome, SealedShares)} == {3 * 32 * 4 * 32}
    assert not {type(m) for _, _, m in run("fdml").messages} & {*RECOVERY, SetProof, SetProofs}


# What the server learns.


def test_a_late_message_stays_hidden_from_all_that_was_opened() -> None:
    """With every message of the round that the server has, the sum is in range, and the late words are in no part."""
    outcome = run("fdml", *RECOVERED, delay=late(Masked))
    federation = outcome.server.federation
    over, shares, dtype = ring(federation), sharing(federation), torch.int32
    sent = {by: m for by, _, m in outcome.messages if isinstance(m, Masked) and (m.round, m.stage) == (2, 0)}
    dealt = {by: m for by, _, m in outcome.messages if isinstance(m, SealedShares)}
    opened = {by: m for by, _, m in outcome.messages if isinstance(m, OpenedShares) and m.round == 2}
    assert set(sent) == set(dealt) == set(NAMES) and set(opened) == set(NAMES[:3]) and shares is not None
    keys = recover(NAMES, shares, dealt, opened, NAMES, NAMES[:3])
    assert set(keys.own) == set(NAMES[:3])
    total = sum(sent[name].words for name in NAMES[:3])
    about = subject(TRAINING, outcome.server.schedule.batch(2))
    found = remove_masks(total, 2, 0, NAMES, keys.own, keys.pairs, about=about)
    assert over.fits(found) and not found[-1].any()  # the last line is of zeros
    pairs = {("party4", name): key for (name, _), key in keys.pairs.items()}
    uncovered = remove_masks(sent["party4"].words.to(dtype), 2, 0, NAMES, {}, pairs, about=about)
    inside = (uncovered.abs() <= over.largest).double().mean()
    assert inside < 2 * over.largest / 2**31  # as of uniform words


# Over restarts.


def test_a_run_that_goes_back_sums_over_the_same_sets(disks: dict[str, RunCache]) -> None:
    """The party that had vanished is as quick as the others the second time: it is still left out."""
    more = (*RECOVERED, "federation.rounds=6")
    before = run("fdml", *more, delay=late(Masked, rounds=(3,)), save=True)
    after = run("fdml", *more, start=(2, before.saved[2]))
    assert sets_of(before)[3] == ALL and sets_of(after)[3] == OTHERS
    assert same(before, after)


def test_a_repeated_round_is_summed_over_no_other_set(disks: dict[str, RunCache]) -> None:
    """The server has forgotten that party4 was missing."""
    before = run("fdml", *RECOVERED, delay=late(Masked, rounds=(3,)), save=True)
    del disks["server"]
    after = run("fdml", *RECOVERED, "federation.timeouts.answer=5", start=(2, before.saved[2]))
    assert not [m for by, _, m in after.messages if isinstance(m, OpenedShares) and m.round == 3]
    assert not [
        m for by, _, m in after.messages if isinstance(m, Masked) and m.round == 3 and by != "party4" and len(m.words)
    ]
    reasons = [e["reason"] for e in after.of_kind("warning") if e["party"] == "party1"]
    assert "round 3 may have been summed over party1, party2, party3" in reasons[0]


# Over gRPC.


async def test_over_the_wire_the_sum_is_exactly_that_of_the_others(tmp_path: Path) -> None:
    sets = (
        "federation.quorum={need: 3, grace: 0.5}",
        "federation.batch=64",
        "federation.timeouts={answer: 20, away: 20}",
    )

    async def total(folder: str, members: list[str], *more: str) -> Tensor | None:
        async with lying(config({"name": "vfedmh", "embedding": 8}, *sets, *more), tmp_path / folder) as there:
            there.start()
            await there.begin("run1")
            return await there.sum("run1", members)

    chaos = "parties.party4.chaos.delay={Masked: 5s}"
    recovered = await total("recovered", NAMES, "federation.blinding.recovery=alone", chaos)
    wanted = await total("others", NAMES[:3])
    assert wanted is not None and recovered is not None and torch.equal(recovered, wanted)


# Settings.


@pytest.mark.parametrize(
    ("sets", "error", "hint"),
    [
        (("federation.quorum=wait",), r"recovery = alone with federation\.quorum\.need = all", "{need: 3, grace"),
        (
            ("federation.parties=7", "federation.quorum={need: 4, grace: 1}", "federation.blinding.recovery=colluding"),
            r"recovery = colluding with federation\.quorum\.need = 4: a sum is over 5 to 6",
            "{need: 5, grace",
        ),
        (
            ("federation.parties=3",),
            r"of 3 parties 3 are needed for a sum, so that none can be missing",
            "more parties",
        ),
        (("federation.protocol.aggregate=clear",), r"recovery = alone with the protocol fdml: its sums", "to blinded"),
        (
            (
                "federation.parties=7",
                "federation.quorum={need: 5, grace: 1}",
                "federation.privacy={clip: 1, noise_multiplier: 1, delta: 1.0e-6, once: {colluders: 1}}",
            ),
            r"once\.colluders = 1: 4 of 7 parties open a key, so that 1 who lie with the server",
            "recovery: colluding",
        ),
    ],
    ids=["wait", "quorum below t", "three parties", "in the clear", "colluders"],
)
def test_settings_that_recover_nothing_or_open_too_much_are_refused(
    sets: tuple[str, ...], error: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=error) as found:
        config({**BLIND["fdml"], "aggregate": "blinded"}, *RECOVERED, *sets)
    assert hint in found.value.hint


@pytest.mark.parametrize("agreed", ["none", "alone", "colluding"])
@pytest.mark.parametrize("accepted", [("none",), ("none", "colluding"), ("alone",), None])
def test_a_policy_refuses_recovery_that_it_does_not_accept(agreed: str, accepted: tuple[Any, ...] | None) -> None:
    """Before the party's stage exists, so that nothing is sent or written; sums in the clear have no keys to open."""
    cfg = config({**BLIND["fdml"], "aggregate": "blinded"}, *LATE, f"federation.blinding.recovery={agreed}")
    policy = PolicyConfig(recovery=accepted)
    if accepted is None or agreed in accepted:
        Privacy("party1", cfg.federation, policy, None, None)
        return
    match = rf"^parties\.party1\.policy\.recovery = {', '.join(accepted)}: the federation has .*recovery = {agreed}$"
    with pytest.raises(ConfigError, match=match) as refused:
        Privacy("party1", cfg.federation, policy, None, None)
    assert refused.value.hint.startswith(f"agree on federation.blinding.recovery: {' or '.join(accepted)}, or")
    assert refused.value.shared == str(refused.value)
    policy.refuse("party1", config(BLIND["fdml"], "federation.rounds=1", "federation.epochs=0").federation)


@pytest.mark.parametrize(
    ("parties", "alone", "colluding"), [(4, 3, 3), (5, 3, 4), (6, 4, 5), (7, 4, 5), (9, 5, 7), (14, 8, 10)]
)
def test_thresholds_leave_no_two_groups_that_could_open_both(parties: int, alone: int, colluding: int) -> None:
    """m colluding parties may open either, each of the others one."""
    for recovery, threshold, colluders in (("alone", alone, 0), ("colluding", colluding, (parties - 1) // 3)):
        sets = (f"federation.parties={parties}", f"federation.quorum={{need: {threshold}, grace: 1}}")
        blinding = f"federation.blinding.recovery={recovery}"
        federation = config({**BLIND["fdml"], "aggregate": "blinded"}, *sets, blinding).federation
        shares = sharing(federation)
        assert shares is not None and shares.threshold == threshold
        assert 2 * (threshold - colluders) > parties - colluders  # honest parties for each
    assert 2 * (alone - 1) <= parties  # t is the smallest such


def test_slow_parties_rest_as_without_recovery() -> None:
    outcome = run("fdml", *RECOVERED, "federation.rounds=20", delay=slow("party4", range(2, 99), 1e4))
    assert [e["round"] for e in outcome.of_kind("partial_sum")] == [2, 5, 10, 19]
