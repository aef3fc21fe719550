"""Noise once on blinded sums: the noise that captured sums carry, what it costs, and settings that would weaken it."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import kstest, norm
from torch import Tensor

from colonnade.client.privacy.egress import Egress
from colonnade.client.privacy.mechanisms import Privacy
from colonnade.common.aggregation.messages import Masked, Members
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.privacy import OnceConfig, PrivacyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import ConfigError, ContractError, InputError
from colonnade.common.parsing.file import parse
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.gaussian import GaussianPlan
from colonnade.common.privacy.sum_noise import NoiseShare, noisy_ring, ring
from colonnade.common.protocols.split import Embedding
from colonnade.common.run.state import State
from colonnade.server.aggregation.masked_sums import Blinded, Found
from colonnade.server.member.planned import planned
from colonnade.server.member.summary import protection
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome, config, federate, late, parameters, tree

PROTOCOLS: dict[str, dict[str, Any]] = {
    "split_avg": {"name": "split_avg", "embedding": 16},
    "vfedmh": {"name": "vfedmh", "embedding": 16},
    "fdml": {"name": "fdml", "embedding": 8},
    "vimadmm_j": {"name": "vimadmm_j", "embedding": 8, "tau": 2, "update": "signal"},
}
CLIENTS = "federation.privacy={clip: 0.5, noise_multiplier: 2, once: {colluders: 1}}"
ROWS = "federation.privacy={mechanism: adaptive, clip: 0.5, noise_multiplier: 0.7, delta: 1e-5, once: {colluders: 1}}"
LATE = ("federation.quorum={need: 3, grace: 0.2}", "federation.evaluate.every=99")
SEEDED = ("federation.benchmark=true", "federation.privacy.seeded=true")
every = pytest.mark.parametrize("name", PROTOCOLS)


def run(name: str, *sets: str, privacy: str = CLIENTS, **how: Any) -> Outcome:
    short = ("federation.rounds=4", "federation.epochs=0", "federation.batch=200", privacy)
    return federate(config({**PROTOCOLS[name], "aggregate": "blinded"}, *short, *sets), **how)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> dict[NoiseShare, list[Tensor]]:
    """What each party's share was added to, in order: clipped, without noise."""
    seen: dict[NoiseShare, list[Tensor]] = defaultdict(list)
    add = NoiseShare.__call__

    def watched(self: NoiseShare, bounded: Tensor) -> Tensor:
        seen[self].append(bounded.double().clone())
        return add(self, bounded)

    monkeypatch.setattr(NoiseShare, "__call__", watched)
    return seen


def unmasked(outcome: Outcome) -> list[tuple[int, Tensor]]:
    """What the server unmasks of the captured words, by Python's integers: the set's size and the sum, in order."""
    scale = ring(outcome.server.federation, outcome.server.schedule.privacy).scale
    words: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    for _, _, m in outcome.messages:
        if isinstance(m, Masked):
            words[m.round, m.stage].append(m.words[:-1].long())  # without the line of zeros
    sizes = {m.round: int(m.members.sum()) for _, _, m in outcome.messages if isinstance(m, Members)}
    found = []
    for (round, _), parts in sorted(words.items()):
        if len(parts) == sizes[round]:
            total = sum(parts) % 2**32
            found.append((len(parts), torch.where(total < 2**31, total, total - 2**32).double() / scale))
    return found


def measured(outcome: Outcome, clean: dict[NoiseShare, list[Tensor]]) -> Tensor:
    """Noise of all captured sums: what the server unmasks less the sum of the clean values."""
    sums, parts = unmasked(outcome), list(clean.values())
    assert all(count == len(parts) for count, _ in sums)
    exact = [torch.stack([mine[place] for mine in parts]).sum(0) for place in range(len(sums))]
    return torch.cat([(total - true).flatten() for (_, total), true in zip(sums, exact, strict=True)])


@pytest.mark.parametrize(("name", "colluders"), [*((name, 1) for name in PROTOCOLS), ("fdml", 0), ("fdml", 2)])
def test_a_sum_carries_the_promised_noise_and_no_less(
    name: str, colluders: int, clean: dict[NoiseShare, list[Tensor]]
) -> None:
    """Of four parties, whose noise was sigma C; less the colluders' it still is."""
    outcome = run(name, f"federation.privacy.once.colluders={colluders}", "federation.rounds=2")
    noise = measured(outcome, clean)
    promised = 2 * 0.5
    expected = promised * math.sqrt(4 / (4 - colluders))
    assert len(noise) > 9_000 and kstest((noise / expected).numpy(), norm.cdf).pvalue > 1e-4
    slack = 5 * promised**2 * math.sqrt(2 / len(noise)) * 4 / (4 - colluders)
    assert abs(noise.var() - expected**2) < slack
    less = (4 - colluders) * share_of(outcome) ** 2
    assert promised**2 <= less < promised**2 * 1.001


def share_of(outcome: Outcome) -> float:
    """Deviation of a party's share, of its own stage."""
    plan = outcome.server.schedule.privacy
    return NoiseShare(plan, noisy_ring(plan, 64, 4, 32), lambda: bytes).sigma / noisy_ring(plan, 64, 4, 32).scale


@pytest.mark.parametrize("name", ["split_avg", "vfedmh"])
def test_a_sum_of_protected_rows_does_too(name: str, clean: dict[NoiseShare, list[Tensor]]) -> None:
    outcome = run(name, privacy=ROWS)
    noise, promised = measured(outcome, clean), 0.7 * 2 * 0.5
    assert max(h.norm(dim=1).max() for parts in clean.values() for h in parts) <= 0.5 + 1e-9
    assert kstest((noise / (promised * math.sqrt(4 / 3))).numpy(), norm.cdf).pvalue > 1e-4


def test_sums_over_fewer_parties_have_the_promised_noise_too(clean: dict[NoiseShare, list[Tensor]]) -> None:
    """Planned for three of four: party4 is late in round 2, whose sum does not come about, and rests afterwards."""

    delay = late("party4", Masked, seconds=3.0, rounds=(2,), others=0.1)
    outcome = run("fdml", *LATE, "federation.batch=1000", "federation.rounds=9", delay=delay)
    plan, promised = outcome.server.schedule.privacy, 1.0
    assert (plan.present, plan.honest) == (3, 2)
    sizes = [size for size, _ in unmasked(outcome)]
    assert set(sizes) == {3, 4} and sizes.count(3) >= 2  # the abandoned round has no sum at all
    # A matrix of norm C adds at most (C x parties)^2 in all to the squares of 10,000 entries.
    for size, total in unmasked(outcome):
        if total.numel() == 10_000:
            assert total.square().mean() > promised**2 * (size / 2) * 0.93


def test_a_recovered_sum_has_the_promised_noise_too(
    clean: dict[NoiseShare, list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned for three of four: the words of party4 come too late in round 2, and its share is not in the sum."""
    totals: list[Tensor | None] = []
    training = Blinded.training

    async def watched(self: Blinded, round: int, batch: Tensor) -> Found:
        found = await training(self, round, batch)
        totals.append(found.total)
        return found

    delay = late("party4", Masked, seconds=3.0, rounds=(2,), others=0.1)
    monkeypatch.setattr(Blinded, "training", watched)
    sets = (*LATE, "federation.blinding.recovery=alone", "federation.privacy.once.colluders=0")
    outcome = run("fdml", *sets, "federation.batch=1000", "federation.rounds=2", delay=delay)
    assert outcome.server.schedule.privacy.present == 3 and len(totals) == 2
    for total, count in zip(totals, (4, 3), strict=True):
        assert total is not None
        exact = torch.stack([parts[4 - count] for parts in list(clean.values())[:count]]).sum(0)
        noise = (total - exact).flatten()
        assert kstest((noise / math.sqrt(count / 3)).numpy(), norm.cdf).pvalue > 1e-4
        assert noise.var() > 0.9


def test_less_than_the_planned_parties_get_no_response() -> None:
    """A server that says that only two are there: each refuses, and sends no word."""

    def lie(cohort: Any) -> None:
        for party in ("party1", "party2"):
            change_each(cohort[party], told)

    def told(item: object) -> object:
        two = isinstance(item, Members) and item.round == 2
        return replace(item, members=torch.tensor([1, 1, 0, 0], dtype=torch.uint8)) if two else item

    more = (
        "federation.blinding.least=2",
        "federation.quorum={need: 3, grace: 0.2}",
        "every_party.policy.min_parties=2",
    )
    sent: list[object] = []

    def watch(sender: str, _to: str, item: object) -> float:
        sent.extend([item] if isinstance(item, Masked) and item.round == 2 and sender in ("party1", "party2") else [])
        return 0.0

    with pytest.raises(ContractError, match=r"Members.members: expected at least 3 parties"):
        run("fdml", *more, on_cohort=lie, delay=watch)
    assert sent == []


def test_a_party_that_leaves_between_noise_and_sum_leaves_no_sum() -> None:
    """What the other three have sent, with noise for three, does not unmask: their masks with the fourth remain."""

    gone = late("party4", Masked, rounds=(2,), others=0.1)
    outcome = run("fdml", *LATE, delay=gone)
    assert [(e["round"], e["party"]) for e in outcome.of_kind("abandoned")] == [(2, "party4")]
    three = [
        m.words.long() for by, _, m in outcome.messages if isinstance(m, Masked) and m.round == 2 and by != "party4"
    ]
    over = ring(outcome.server.federation, outcome.server.schedule.privacy)
    assert len(three) == 3 and not over.fits(over.total(torch.stack(three).to(torch.int32)))


# Cost.


@every
def test_the_report_counts_a_party_as_before_and_a_person_by_the_shares(name: str) -> None:
    outcome = run(name, "federation.privacy.once.colluders=2")
    counts = {party: kept.releases for party, kept in outcome.privacy.items()}
    report, count = protection(outcome.server, counts), counts["party1"]
    sent = sum(isinstance(m, Masked) for by, _, m in outcome.messages if by == "party1")
    assert set(counts.values()) == {sent}
    assert report["epsilon"]["party1"] == pytest.approx(epsilon(count, 2, 1e-5, "replace"), abs=1e-6)
    if name == "vfedmh":  # the server's own columns have no noise
        assert report["person"]["epsilon"] is None
    else:
        assert report["person"]["epsilon"] == pytest.approx(epsilon(4 * 2 * count, 2, 1e-5, "replace"), abs=1e-6)
    assert {key: report["privacy"][key] for key in ("present", "colluders", "gain")} == {
        "present": 4, "colluders": 2, "gain": pytest.approx(math.sqrt(2), abs=1e-6),
    }  # fmt: skip


def test_a_person_is_as_well_hidden_as_by_as_much_noise_of_each_party() -> None:
    """Noise once with sqrt(honest) times the multiplier has the parties' own noise: the same sum, the same epsilon."""
    once = plan_of(14, present=14, colluders=0, noise_multiplier=10 * math.sqrt(14))
    each = GaussianPlan(PrivacyConfig(clip=1, noise_multiplier=10), 10, 5, 5, None)
    assert once.person_epsilon([5] * 14) == pytest.approx(each.person_epsilon([5] * 14), rel=1e-9)


def plan_of(parties: int, *, present: int, colluders: int, **more: Any) -> GaussianPlan:
    made = PrivacyConfig(clip=1, once=OnceConfig(present=present, colluders=colluders), **more)
    assert made.noise_multiplier is not None and present <= parties
    return GaussianPlan(made, made.noise_multiplier, 5, 5, None, present=present)


@pytest.mark.parametrize(("present", "colluders", "gain"), [(14, 0, 3.74), (10, 5, 2.24), (10, 9, 1.0)])
def test_check_says_what_is_gained(present: int, colluders: int, gain: float) -> None:
    sets = (
        f"federation.privacy={{clip: 1, epsilon: 8, once: {{colluders: {colluders}}}}}", "federation.parties=14",
        f"federation.quorum={{need: {present}, grace: 1}}", "every_party.data.split={kind: columns}",
    )  # fmt: skip
    federation = parse(tree({**PROTOCOLS["split_avg"], "aggregate": "blinded"}), sets).federation
    schedule = Schedule(federation, 1797, 0)
    said = [sentence.text for sentence in planned(federation, None, schedule)]
    expected = f"noise once on sums of at least {present} of 14 parties: {gain:.3g} times less"
    assert any(expected in text for text in said), said
    assert schedule.privacy is not None
    assert schedule.privacy.gain == pytest.approx(gain, abs=0.005)


def test_the_budget_ends_a_run_as_without() -> None:
    short = "federation.privacy={clip: 0.5, epsilon: 7.5, noise_multiplier: 3, once: {colluders: 1}}"
    with_once, without = run("fdml", privacy=short), run("fdml", privacy=short.replace(", once: {colluders: 1}", ""))
    rounds = [outcome.server.schedule.rounds for outcome in (with_once, without)]
    assert rounds[0] == rounds[1] < 4


# The run.


def test_seeded_noise_makes_the_same_run_and_the_systems_does_not() -> None:
    one, two, fresh = (run("split_avg", *sets) for sets in (SEEDED, SEEDED, ()))
    assert all(torch.equal(values, parameters(two)[member]) for member, values in parameters(one).items())
    assert not all(torch.equal(values, parameters(fresh)[member]) for member, values in parameters(one).items())


def test_a_run_that_goes_on_ends_as_one_that_did_not_stop() -> None:
    before = run("split_avg", *SEEDED, save=True)
    after = run("split_avg", *SEEDED, start=(2, before.saved[2]))
    for member, values in parameters(before).items():
        assert torch.equal(values, parameters(after)[member])


@pytest.mark.parametrize(("name", "bits"), [("split_avg", 32), ("vfedmh", 32), ("fdml", 64)])
def test_it_sends_the_same_messages_of_the_same_bytes(name: str, bits: int) -> None:
    def sizes(outcome: Outcome) -> list[tuple[str, str, int]]:
        masked = [(by, m) for by, _, m in outcome.messages if isinstance(m, Masked)]
        return sorted((by, f"{m.round} {m.stage}", m.words.nbytes) for by, m in masked)

    wide = f"federation.blinding.bits={bits}"
    without = "federation.privacy={clip: 0.5, noise_multiplier: 2}"
    assert sizes(run(name, wide)) == sizes(run(name, wide, privacy=without)) != []


def test_evaluations_in_the_clear_are_not_shifted_by_the_ring() -> None:
    """They are not on its steps: rounded to them, and clipped to federation.blinding.bound as without noise."""
    sets = (
        "federation.benchmark=true",
        "federation.privacy.evaluate=clean",
        "federation.privacy.noise_multiplier=1e-3",
    )
    blind = run("split_avg", *sets, "federation.rounds=1").server.metrics
    each = ("federation.rounds=1", "federation.epochs=0", "federation.batch=200", "federation.privacy.clip=0.5")
    plain = federate(config(PROTOCOLS["split_avg"], *each, *sets))
    assert blind["test_loss"] == pytest.approx(plain.server.metrics["test_loss"], abs=1e-3)


def test_a_share_is_noise_on_values_that_rounding_has_not_lengthened() -> None:
    plan = plan_of(3, present=3, colluders=0, noise_multiplier=0.5)
    over = noisy_ring(plan, 4.0, 3, 32)
    share = NoiseShare(plan, over, lambda: bytes)
    share.sigma = 1
    values = torch.randn(1000, 30, dtype=torch.float64)
    values /= values.norm()
    quiet = [share_without_noise(share, sign * values) / over.scale for sign in (1, -1)]
    for steps, true in zip(quiet, (values, -values), strict=True):
        assert steps.norm() <= 1 and (steps.abs() <= true.abs()).all()
        assert (steps - true).abs().max() <= 1.001 / over.scale
    assert (quiet[0] - quiet[1]).norm() <= 2


def share_without_noise(share: NoiseShare, values: Tensor) -> Tensor:
    """Rounded as by a share whose noise is 0: with bits of which every coin falls so."""
    with pytest.MonkeyPatch.context() as patch:
        nothing = lambda count, *_: torch.zeros(count).long().numpy()  # noqa: E731
        patch.setattr("colonnade.common.privacy.sum_noise.discrete_gaussian", nothing)
        return share(values).double()


def test_a_share_leaves_under_masks_alone() -> None:
    """A message in the clear that carries one is stopped at the door."""
    cfg = config(
        {**PROTOCOLS["split_avg"], "aggregate": "blinded"}, "federation.privacy={clip: 1, epsilon: 8, once: {}}"
    )
    plan = Schedule(cfg.federation, 1797, 0).privacy
    privacy = Privacy("party1", cfg.federation, PolicyConfig(), plan, None)
    egress = Egress(lambda _item: None, "server", privacy.stage(State()), Ledger(None))
    released = egress.release(torch.ones(4, 16))
    assert released.steps is not None and "once, 4 present, 1 colluding" in released.mechanism
    with pytest.raises(ContractError, match=r"Embedding.h: expected a masked tensor: this one has only a share"):
        egress(Embedding(1, released))


# Settings that would weaken it.


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("federation.protocol.aggregate=clear",),
         r"privacy.once with the protocol split_avg: the server would see each party's values"),
        (("federation.privacy.once.colluders=4",), r"once.colluders = 4: of the 4 parties of a sum none is left"),
        (("federation.privacy.once={present: 4, colluders: 0}", *LATE),
         r"once.present = 4: a sum may be of 3 parties, and would have less noise than promised"),
        (("federation.privacy.once.present=5",), r"once.present = 5: a sum may be of 4 parties"),
        (("federation.privacy.seeded=true",), r"once with federation.privacy.seeded: every member could subtract"),
        (("federation.privacy.once.colluders=-1",), r"once.colluders"),
    ],
)  # fmt: skip
def test_settings_that_would_weaken_it_are_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config({**PROTOCOLS["split_avg"], "aggregate": "blinded"}, CLIENTS, *sets)


@pytest.mark.parametrize("rule", ["max_epsilon", "min_noise_multiplier"])
def test_a_policy_that_limits_epsilon_wants_noise_that_allows_for_a_colluder(rule: str) -> None:
    """Each other party reads what comes of the sum, and knows its own noise."""
    alone = (CLIENTS, "federation.privacy.once.colluders=0", "federation.rounds=1", "federation.epochs=0")
    cfg = config({**PROTOCOLS["fdml"], "aggregate": "blinded"}, *alone)
    plan = Schedule(cfg.federation, 1797, 0).privacy
    limit = {rule: 1000.0 if rule == "max_epsilon" else 1.0}
    with pytest.raises(ConfigError, match=r"policy.min_colluders = 1: the federation has once.colluders = 0"):
        Privacy("party1", cfg.federation, PolicyConfig(**limit), plan, None)
    Privacy("party1", cfg.federation, PolicyConfig(**limit, min_colluders=0), plan, None)
    Privacy("party1", cfg.federation, PolicyConfig(), plan, None)


def test_a_protocol_without_sums_is_refused_and_so_is_a_factor_from_shares() -> None:
    with pytest.raises(ConfigError, match=r"once with the protocol vimadmm: .*") as refused:
        config({"name": "vimadmm"}, CLIENTS)
    assert "fdml, split_avg, vfedmh, vimadmm_j" in str(refused.value.hint).replace(
        "vimadmm_j, vfedmh", "vfedmh, vimadmm_j"
    )
    with pytest.raises(ConfigError, match=r"once with federation.privacy.rescale = released"):
        config({**PROTOCOLS["split_avg"], "aggregate": "blinded"}, ROWS, "federation.privacy.rescale=released")


def test_noise_that_the_ring_has_no_steps_for_is_refused_and_any_other_fits() -> None:
    plan = plan_of(14, present=14, colluders=0, noise_multiplier=1e-3)
    with pytest.raises(InputError, match=r"with 32 bits the noise has fewer than 256 steps"):
        noisy_ring(plan, 1e4, 14, 32)
    assert noisy_ring(plan, 1e4, 14, 64).scale > 0
    cfg = config({**PROTOCOLS["split_avg"], "aggregate": "blinded"}, CLIENTS, "federation.blinding.bound=1e8")
    with pytest.raises(ConfigError, match=r"federation.blinding: noise of 0.577 a party .* fewer than 256 steps"):
        Schedule(cfg.federation, 1797, 0)
    for multiplier in (1e-2, 1.0, 1e6):
        over = noisy_ring(plan_of(14, present=14, colluders=0, noise_multiplier=multiplier), 1.0, 14, 32)
        assert (
            14 * (1 + 12 * multiplier / math.sqrt(14)) * over.scale < 2**31
        )  # twelve deviations at every party at once
