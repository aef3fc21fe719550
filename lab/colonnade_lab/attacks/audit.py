"""Audits of every mechanism that adds noise, called as a run calls it, with worst-case canaries.

To audit a new mechanism, write one function that returns an `Audited`, and call it in `mechanisms`.

An audit takes one run: random coins, scores, guesses, and the least epsilon compared with the claim (Steinke, Nasr and
Jagielski 2023, "Privacy Auditing with One (1) Training Run"). A coin gives every canary one of two values, and the
attacker guesses some of the coins. If the mechanism is (epsilon, delta)-private, the number of correct guesses among r
exceeds v with at most the probability that a binomial of r trials at e^epsilon / (1 + e^epsilon) does, plus a term in
delta (their Theorem 5.2). The theorem needs no independence of the canaries; the neighbouring relation replaces one
canary's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import binom, norm
from torch import Tensor

from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.config.privacy import PARTS, AdaptivePrivacyConfig, LabelPrivacyConfig, ResponseNoiseConfig
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.accountant import epsilon, gaussian_epsilon
from colonnade.common.privacy.accounting.budget import Budget, StepBudget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.codes import CodeRelease, DiscretePlan, SeededSets
from colonnade.common.privacy.encoders import LinearEncoder
from colonnade.common.privacy.gaussian import GaussianPlan, GaussianRelease
from colonnade.common.privacy.labels import label_noise
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals
from colonnade.common.privacy.response_noise import RowNoise
from colonnade.common.privacy.rows import NoisySteps, RowBudget, RowPlan, RowRelease, SampledSteps
from colonnade.common.privacy.shaped import Rescale, Shape
from colonnade.common.privacy.sum_noise import NoiseShare, ring
from colonnade_lab.attacks.bounds import clopper_pearson
from colonnade_lab.attacks.run import AttackedRun

_LARGEST = 64.0  # epsilon


@dataclass(frozen=True)
class Guesses:
    """Numbers of canaries (m), of guesses made (r; the attacker abstained on the others) and of right ones (v)."""

    canaries: int
    made: int
    right: int


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of at least as many correct guesses under (epsilon, delta)-privacy (Theorem 5.2)."""
    r, v = guesses.made, guesses.right
    share = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(v - 1, r, share))
    if delta == 0 or v == 0:
        return min(beta, 1.0)
    between = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, share))  # P(v - i <= binomial < v), for i = 1 .. v
    alpha = float((between / np.arange(1, v + 1)).max())
    return min(beta + 2 * guesses.canaries * delta * alpha, 1.0)


def least_of_any(guesses: Guesses, delta: float, confidence: float = 0.95) -> float:
    """Returns a lower bound of epsilon for any mechanism with these guesses; 0 if they show nothing."""

    def refuted(epsilon: float) -> bool:
        return p_value(guesses, epsilon, delta) < 1 - confidence

    low, high = 0.0, _LARGEST
    if not refuted(low):
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def least_of_gaussian(guesses: Guesses, delta: float, confidence: float = 0.95) -> float:
    """Returns a lower bound of epsilon for independent normal noise on every canary; it is far tighter.

    Without abstention a guess is right with probability at most Phi(mu / 2) (Dong, Roth and Su 2022), where mu is the
    distance of a canary's two values in standard deviations, over all of its releases. The lower end of mu's one-sided
    interval is converted exactly to an epsilon at `delta`.
    """
    if guesses.made != guesses.canaries:
        raise ValueError("the bound for Gaussian noise needs a guess about every canary")
    low, _ = clopper_pearson(guesses.right, guesses.made, 2 * confidence - 1)
    if low <= 0.5:
        return 0.0
    mu = 2 * float(norm.ppf(min(low, 1 - 1e-12)))
    return gaussian_epsilon(1 / mu, delta)


_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)  # candidate shares of canaries to guess
_PILOT = 0.2  # share of the canaries that chooses among these
_FEWEST = 100


@dataclass(frozen=True)
class Audited:
    """A mechanism under audit.

    Args:
        epsilon: claim for one canary over all releases that `scores` looks at; None if nothing is claimed.
        scores: maps coins, bool (n,), to float64 (n,). It releases every canary with one of two neighbouring values
            (True for the second) and returns the attacker's scores, larger where the second value is likelier. It must
            call the code that a run calls.
        gaussian: True if canaries' scores are normal with one deviation and independent of each other.
    """

    name: str
    epsilon: float | None
    delta: float
    scores: Callable[[Tensor], Tensor]
    gaussian: bool = False


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit.

    Args:
        accuracy: share of all canaries that are guessed right without abstention.
        least: lower bound of epsilon for any mechanism with these guesses; `least_gaussian` for a Gaussian one.
    """

    mechanism: str
    claimed: float | None
    delta: float
    guesses: Guesses
    accuracy: float
    least: float
    least_gaussian: float | None
    confidence: float

    @property
    def refuted(self) -> bool:
        return self.claimed is not None and max(self.least, self.least_gaussian or 0.0) > self.claimed


def audit(audited: Audited, canaries: int, seed: int, confidence: float = 0.95) -> AuditResult:
    """Audits a mechanism. `seed` draws the coins: the mechanism's own noise is not seeded.

    A fifth of the canaries decides how many of the others are guessed: those with the most extreme scores. Scores are
    compared with the midpoint of that fifth's two class means. The largest bound that can be found grows with the
    logarithm of `canaries`.
    """
    if canaries < _FEWEST:
        raise InputError(f"{canaries} canaries: an audit needs at least {_FEWEST}", hint="the default is 20000")
    coins = torch.rand(canaries, generator=generator("canaries", seed), dtype=torch.float64) < 0.5
    scores = audited.scores(coins).double()
    pilot, rest = slice(0, round(_PILOT * canaries)), slice(round(_PILOT * canaries), canaries)
    middle = _middle(scores[pilot], coins[pilot])
    share = max(_SHARES, key=lambda one: least_of_any(_guess(scores[pilot] - middle, coins[pilot], one), 0.0))
    made, every = (_guess(scores[rest] - middle, coins[rest], one) for one in (share, 1.0))
    gaussian = least_of_gaussian(every, audited.delta, confidence) if audited.gaussian else None
    return AuditResult(
        audited.name, audited.epsilon, audited.delta, made, every.right / every.made,
        least=least_of_any(made, audited.delta, confidence), least_gaussian=gaussian, confidence=confidence,
    )  # fmt: skip


def _middle(scores: Tensor, coins: Tensor) -> float:
    """Returns the midpoint of both classes' means; infinite scores, which decide alone, do not count."""
    kinds = [scores[kind & scores.isfinite()] for kind in (coins, ~coins)]
    return sum(float(kind.mean()) for kind in kinds) / 2 if all(map(len, kinds)) else 0.0


def _guess(scores: Tensor, coins: Tensor, share: float) -> Guesses:
    made = max(1, round(share * len(scores)))
    surest = scores.abs().topk(made).indices
    return Guesses(len(scores), made, int(((scores[surest] > 0) == coins[surest]).sum()))


RELEASES = 2
"""Most releases of a canary in an audit of a run: each costs a call for every canary."""


def party_matrices(plan: GaussianPlan, releases: int, normals: Normals = secure_normals) -> Audited:
    """Audits `federation.privacy` with `mechanism: gaussian`: a canary is a party with one of two matrices of norm C.

    Under `participation` the second party is absent, which sends zeros.
    """
    release = GaussianRelease(plan, normals, Budget(None, None, plan.releases))
    clip = plan.config.clip
    other = 0.0 if plan.config.adjacency == "participation" else -clip

    def score(coin: bool) -> float:
        matrix = torch.tensor([[clip if coin else other, 0.0]], dtype=torch.float64)
        return sum(float(release(matrix)[0, 0]) for _ in range(releases))

    name = f"gaussian, sigma {plan.noise_multiplier:g}, {plan.config.adjacency}, {releases} releases"
    return Audited(name, plan.epsilon(releases), plan.config.delta, _one_by_one(score), gaussian=True)


def embedded_rows(plan: RowPlan, releases: int, normals: Normals = secure_normals) -> Audited:
    """Audits `mechanism: adaptive`: a canary is a row whose embeddings lie at opposite ends of the region.

    With `steps` every release is followed by one step, in which the row's gradient is at one of two ends as well.
    """
    config = plan.config
    cost = config.training_cost(1)

    def scores(coins: Tensor) -> Tensor:
        ends = _ends(config)
        counts = RowBudget(Budget(None, None, plan.releases), torch.zeros(len(coins), dtype=torch.int64))
        steps = NoisySteps(plan, 1, normals) if config.steps and plan.steps is None else None
        release = RowRelease(plan, normals, counts, Rescale("none", config.clip, plan.deviation), steps)
        rows, apart = torch.arange(len(coins)), ends[1] - ends[0]
        found = torch.zeros(len(coins), dtype=torch.float64)
        for _ in range(releases):
            sent = release(ends[coins.long()], rows=rows)
            found += sent.double() @ apart / plan.deviation**2
            if plan.steps is not None:
                found += _secretly_stepped(plan, plan.steps, coins, normals)
            elif config.steps is not None:
                found += _stepped(plan, config, coins, normals)
        return found

    noised = f", steps at cost {config.steps.cost:g}" if config.steps else ""
    if plan.steps is not None:
        noised = f", steps at rate {plan.steps.rate:g} and sigma {plan.steps.noise_multiplier:g}"
    name = f"adaptive, {config.release}, sigma {plan.noise_multiplier:g}{noised}, {releases} releases"
    return Audited(name, plan.epsilon(releases * cost / PARTS), config.delta, scores, gaussian=plan.steps is None)


def _one_by_one(score: Callable[[bool], float]) -> Callable[[Tensor], Tensor]:
    return lambda coins: torch.tensor([score(coin) for coin in coins.tolist()], dtype=torch.float64)


def _ends(config: AdaptivePrivacyConfig) -> Tensor:
    if config.release.startswith("positive"):
        return config.clip * math.sqrt(2) * torch.eye(2, dtype=torch.float64)
    return config.clip * torch.tensor([[-1.0, 0], [1, 0]], dtype=torch.float64)


def _stepped(plan: RowPlan, config: AdaptivePrivacyConfig, coins: Tensor, normals: Normals) -> Tensor:
    assert config.steps is not None
    clip = config.steps.clip
    noise = 2 * plan.noise_multiplier * clip / math.sqrt(config.steps.cost)
    steps = NoisySteps(plan, 1, normals)

    def score(coin: bool) -> float:
        steps.pay()
        (mean,) = steps.mean([torch.tensor([[clip if coin else -clip]], dtype=torch.float64)])
        return float(mean) * 2 * clip / noise**2

    return _one_by_one(score)(coins)


def _secretly_stepped(plan: RowPlan, steps: SampledGaussian, coins: Tensor, normals: Normals) -> Tensor:
    """Returns log-likelihood ratios from one step that draws the canary or not, and no other row."""
    assert plan.config.steps is not None  # ensured by the plan
    clip = plan.config.steps.clip

    def score(coin: bool) -> float:
        noisy = SampledSteps(plan, StepBudget(None, steps), normals, secure_bytes())
        drawn = noisy.draw(torch.zeros(1, dtype=torch.int64))
        share = torch.full((len(drawn), 1), clip if coin else -clip, dtype=torch.float64)
        (mean,) = noisy.mean([share])  # the mean over an expected 1 row is the sum
        return steps.loss(float(mean) / clip)

    return _one_by_one(score)(coins)


def responses(config: ResponseNoiseConfig, releases: int, normals: Normals = secure_normals) -> Audited:
    """Audits `server.privacy.answers`: a canary is a label, which decides between two opposite values of norm C."""

    def scores(coins: Tensor) -> Tensor:
        noise, signs = RowNoise(config.clip, config.noise_multiplier, normals), coins.double() * 2 - 1
        values = config.clip * torch.stack([signs, torch.zeros_like(signs)], dim=1)
        found = sum(noise.rows(values)[:, 0] for _ in range(releases - 1))
        last = torch.stack([noise.sums([row[None]])[0][0] for row in values])  # a sum over a batch, the canary's alone
        return last + found

    claimed = epsilon(releases, config.noise_multiplier, config.delta, "replace", config.accounting)
    name = f"answers, sigma {config.noise_multiplier:g}, {releases} releases"
    return Audited(name, claimed, config.delta, scores, gaussian=True)


def labels(config: LabelPrivacyConfig, classes: int, seed: int = 0) -> Audited:
    """Audits `server.privacy.labels`: a canary is a label, class 0 or class 1, released once."""

    def scores(coins: Tensor) -> Tensor:
        noise, bits = label_noise(config, classes), config.bits(seed)
        if noise.draw_by is not None:  # the prior under which canaries' sets are most informative
            prior = torch.tensor([1.0, 1.0, *[1e-6] * (classes - 2)]).expand(len(coins), classes)
            evidence = noise.evidence(noise.draw_by(coins.long(), prior, bits))
        else:
            evidence = noise.evidence(noise.draw(coins.long(), bits))
        return evidence[:, 1] - evidence[:, 0]

    claimed, by_prior = label_noise(config, classes).epsilon, " by a prior" if config.prior else ""
    return Audited(f"labels, {config.mechanism}{by_prior}, {classes} classes", claimed, 0.0, scores)


def mechanisms(run: AttackedRun) -> dict[str, Audited]:
    """A run's mechanisms to audit, by their configuration key."""
    plan, server, found = run.schedule.privacy, run.config.server, dict[str, Audited]()
    match plan:
        case GaussianPlan() | RowPlan() if plan.config.heuristic:
            pass  # claims nothing
        case GaussianPlan() | RowPlan() if plan.config.once is not None:
            sums = noisy_sums(plan, ring(run.config.federation, plan), min(plan.releases, RELEASES))
            found["federation.privacy.once"] = sums
        case GaussianPlan():
            found["federation.privacy, gaussian"] = party_matrices(plan, min(plan.releases, RELEASES))
        case RowPlan():
            found["federation.privacy, adaptive"] = embedded_rows(plan, min(run.epochs, RELEASES))
        case DiscretePlan():
            found["federation.privacy, discrete: codes"] = released_codes(plan)
            found["federation.privacy, discrete: encoder"] = trained_encoder(plan)
    if server and server.privacy.answers:
        found["server.privacy.answers"] = responses(server.privacy.answers, RELEASES)
    if server and server.privacy.labels:
        found["server.privacy.labels"] = labels(server.privacy.labels, run.config.federation.outputs)
    return found


_RATE = 1e-6  # learning rate: weights stay near 0, where gradients are long; scores need no scale
_LONG = 1e3  # a canary's input, so that its gradient has the clip's length
_TOGETHER = 2000  # canaries per training, each with its own input


def released_codes(plan: DiscretePlan, bits: Bits | None = None) -> Audited:
    """Audits `mechanism: discrete`: a canary is a row that the encoder did not learn from, with code 0 or 1."""
    source = bits or secure_bytes()

    def scores(coins: Tensor) -> Tensor:
        held_out = replace(plan, train=torch.zeros(0, dtype=torch.int64))
        training, others = (SeededSets(each, lambda _rows: source) for each in (held_out.training, held_out.held_out))
        release = CodeRelease(held_out, training, others, len(coins), lambda: 1.0)
        sets = release(torch.eye(plan.codes)[coins.long()], rows=torch.arange(len(coins)))
        return (sets[:, 1] - sets[:, 0]).double()

    name = f"codes, {plan.held_out.size} of {plan.codes}"
    return Audited(name, plan.held_out.epsilon, 0.0, scores)


def trained_encoder(plan: DiscretePlan, normals: Normals = secure_normals, bits: Bits | None = None) -> Audited:
    """Audits DP-SGD of the encoder: a canary is a row with its own input, in the first or the second class.

    Every step that draws the row moves the weights of its input by the whole clip, in one direction or the other.
    """

    def scores(coins: Tensor) -> Tensor:
        encoder = LinearEncoder(plan.encoder, plan.config.clip, _RATE)
        found = []
        for some in torch.split(coins, _TOGETHER):
            rows = torch.eye(len(some), dtype=torch.float64) * _LONG
            targets = torch.eye(2, dtype=torch.float64)[some.long()]
            weights = encoder.train(rows, targets, normals=normals, bits=bits)
            found.append(weights[:, 1] - weights[:, 0])
        return torch.cat(found)

    name = (
        f"encoder, sigma {plan.noise_multiplier:g}, {plan.encoder.steps} steps, rows drawn at {plan.encoder.rate:.3g}"
    )
    return Audited(name, plan.of_encoder, plan.config.delta, scores)


def noisy_sums(plan: PrivacyPlan, ring: Ring, releases: int, shares: int = 0) -> Audited:
    """Audits `federation.privacy.once`: a canary is a party's matrix, or a row, at one of two ends, in sums.

    `shares` counts the noise shares in a sum, the victim's included; 0 takes as many as the plan assumes.
    """
    share, clip, shares = NoiseShare(plan, ring, secure_bytes), plan.config.clip, shares or plan.honest
    apart = clip if plan.config.adjacency == "participation" else 2 * clip

    def scores(coins: Tensor) -> Tensor:
        ends = clip - apart * (~coins).double()
        found = torch.zeros(len(coins), dtype=torch.float64)
        for _ in range(releases):
            total = share(ends)  # the victim's
            for _ in range(shares - 1):
                total = total + share(torch.zeros_like(ends))  # of others, with known values
            found += total.double() / ring.scale
        return found * apart / plan.deviation**2

    name = f"noise once, {shares} shares, sigma {plan.noise_multiplier:g}, {plan.config.adjacency}, {releases} releases"
    return Audited(name, plan.epsilon(releases), plan.config.delta, scores, gaussian=True)


NORMAL = 0.9987
"""p2 of mu + 3 sd; p1 is taken as 1, which is in the theorem's favour."""


@dataclass(frozen=True)
class Neighbours:
    """A batch of embeddings before the clip, (n, width), and a replacement of its first row, (width,)."""

    rows: Tensor
    other: Tensor
    name: str


def rescaled(
    pair: Neighbours, t: float, sigma: float, delta: float, *, shrink: bool = True, normals: Normals = secure_normals
) -> Audited:
    """Audits one training release of the whole batch under `rescale: paper`; a canary is the first row of a batch.

    Every canary has its own batch, with the same other rows, which the attacker knows. Its score is the exact
    log-likelihood ratio of the whole release, with noise of N(0, 4 sigma^2 t^2) in every entry. `delta` is the clip's;
    without `shrink` factors are kept at 1 or above.
    """
    means = _shaped(pair, t, sigma, shrink=shrink)
    apart, noise = means[1] - means[0], 2 * sigma * t

    def score(coin: bool) -> float:
        sent = means[int(coin)] + noise * normals(apart.shape)
        return float(((sent - (means[0] + means[1]) / 2) * apart).sum() / noise**2)

    claimed = gaussian_epsilon(sigma, delta)
    name = f"rescale: paper, sigma {sigma:g}, {pair.name}"
    return Audited(name, claimed, delta / NORMAL, _one_by_one(score), gaussian=True)


def exact_epsilon(pair: Neighbours, t: float, sigma: float, delta: float, *, shrink: bool = True) -> float:
    """Returns the exact epsilon at delta / p2 between two batches, from the distance of their releases."""
    one, other = _shaped(pair, t, sigma, shrink=shrink)
    mu = float((one - other).norm()) / (2 * sigma * t)
    return gaussian_epsilon(1 / mu, delta / NORMAL) if mu > 0 else 0.0


def _shaped(pair: Neighbours, t: float, sigma: float, *, shrink: bool) -> list[Tensor]:
    """Clips both batches to a ball of radius t, and rescales them by their own distances, with the code of a run."""
    shape = Shape("ball", t, Rescale("paper", t, 2 * sigma * t, shrink=shrink), leaves=True).train()
    first = pair.rows.double()
    return [shape(rows) for rows in (first, torch.cat([pair.other.double()[None], first[1:]]))]
