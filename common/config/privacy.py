"""`federation.privacy`: differential privacy of the parties' messages, by one of three mechanisms.

gaussian   every message, clipped, with noise: a party's data as a whole (Xie et al. 2024, Section V) adaptive   every
embedding, in a region, with noise: a row (VFL-AFE, Mi et al. 2023, Section 3) discrete   one code a row, and the
encoder that makes it: a row

`server.privacy`: differential privacy of the server's labels.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from colonnade.common.errors import ConfigError, nearest, shown
from colonnade.common.section import Section

Adjacency = Literal["participation", "replace", "row"]
Accounting = Literal["exact", "renyi"]

RegionName = Literal["ball", "sphere", "positive_ball", "positive_sphere"]

LEAST_DELTA = 1e-9
"""The smallest delta of steps over secretly drawn rows, whose privacy losses are added up by convolution."""


PARTS = 10**9
"""Parts of a release, in which costs are counted: whole numbers, whose sums no order or interruption can change."""


def releases_of(parts: int) -> int:
    """Number of releases that pay for these parts."""
    return -(-parts // PARTS)


class OnceConfig(Section):
    """`federation.privacy.once`: a blinded sum has the noise once, instead of once per party.

    Every party adds noise of sigma / sqrt(present - colluders) before its part is blinded: the sum over any `present`
    parties less any `colluders` of them has at least noise of sigma.
    """

    present: int | None = Field(
        default=None,
        ge=1,
        description="parties that are in every sum at least; left out, all that federation.quorum and blinding ensure",
    )
    colluders: int = Field(
        default=1,
        ge=0,
        description="parties of a sum that may tell the server their noise, or add none, without weakening the "
        "guarantee; 1 also covers what each party reads itself; 0 protects against the server alone",
    )


class NoiseConfig(Section):
    """Settings common to every mechanism of `federation.privacy`: noise and budget.

    Attributes:
        protects: the exchange (common/contracts/contract.py) that the mechanism protects; "" for any.
        unit: the protected value, one per row.
        counts: noisy counts, only for codes.
    """

    protects: ClassVar[str] = ""
    unit: ClassVar[str] = ""
    counts: ClassVar[None] = None

    noise_multiplier: float | None = Field(
        default=None, description="sigma, standard deviation of the noise in units of `clip` (adaptive: of 2 `clip`)"
    )
    epsilon: float | None = Field(
        default=None, gt=0, description="privacy budget of every party; the run ends before it is exceeded"
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="probability beside epsilon")
    accounting: Accounting = Field(
        default="exact", description="how releases add up: exactly, or by Renyi's bound as in papers, which is larger"
    )
    rounds: int | None = Field(
        default=None, ge=1, description="rounds over which epsilon is spent; left out, all of the run"
    )
    predictions: int = Field(
        default=0, ge=0, description="releases of every party kept back from training, for predictions with the model"
    )
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")
    evaluate: Literal["released", "clean", "none"] = Field(
        default="released",
        description="clean: evaluations without noise, which voids the guarantee; none: zeros in their place, which "
        "shows what the model predicts without the parties, and costs nothing",
    )
    once: OnceConfig | None = Field(
        default=None, description="noise once on a blinded sum, in shares of the parties; left out, each adds all of it"
    )

    def training_cost(self, steps: int) -> int:  # noqa: ARG002
        """Cost of a training row's release and the steps that follow it, in `PARTS` of a release of an embedding."""
        return PARTS

    @property
    def heuristic(self) -> str:
        """Description of unproven settings, or ""."""
        return ""

    @property
    def unbounded(self) -> str:
        """Reason why no epsilon bounds all releases together, though each has one; or ""."""
        return ""

    @model_validator(mode="after")
    def _reserved(self) -> Self:
        if self.predictions and self.epsilon is None:
            raise ConfigError(
                f"federation.privacy.predictions = {self.predictions}: without epsilon there is no budget to keep them "
                "of",
                hint="give federation.privacy.epsilon, or leave predictions out: nothing limits them then",
            )
        if self.predictions and self.evaluate != "released":
            raise ConfigError(
                f"federation.privacy.predictions = {self.predictions}: with evaluate = {self.evaluate} predictions are "
                "no releases, and take nothing of the budget",
                hint="leave predictions or evaluate out",
            )
        return self

    @field_validator("noise_multiplier")
    @classmethod
    def _some_noise(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ConfigError(
                f"federation.privacy.noise_multiplier = {value:g}: without noise no epsilon is finite",
                hint="leave it out and give epsilon, from which it is found; without `privacy` nothing is protected",
            )
        return value


class PrivacyConfig(NoiseConfig):
    """Client-level differential privacy of what parties send (Xie et al. 2024, Section V).

    Every released matrix is clipped to C in its Frobenius norm; every entry gets noise from
    N(0, (sigma C)^2). Give sigma, or a budget from which it is found, or both: the run then ends before the budget is
    exceeded.
    """

    rescale: ClassVar[Literal["none"]] = "none"
    steps: ClassVar[None] = None

    mechanism: Literal["gaussian"] = Field(
        default="gaussian", description="the mechanism, which decides the other keys of this section"
    )
    clip: float = Field(gt=0, description="C, the largest Frobenius norm of a message")
    adjacency: Literal["participation", "replace"] = Field(
        default="replace",
        description="neighbours of the guarantee: a party that has other data (replace, sensitivity 2C), or that is "
        "absent (participation, C)",
    )

    @model_validator(mode="after")
    def _enough_said(self) -> PrivacyConfig:
        if self.noise_multiplier is None and self.epsilon is None:
            raise ConfigError(
                "federation.privacy: neither noise_multiplier nor epsilon is there",
                hint="give epsilon, from which the noise is found, such as 8; `colonnade check` prints what a "
                "noise_multiplier comes to",
            )
        return self


UNBOUNDED = (
    "no bound for a row: without federation.privacy.steps it moves the models, and by them the embeddings of all other "
    "rows"
)

PROPOSED_EPSILON, PROPOSED_DELTA = 8.0, 1e-5

PROPOSED = (
    f"{{mechanism: adaptive, clip: 1, epsilon: {PROPOSED_EPSILON:g}, delta: {PROPOSED_DELTA:.1e}, steps: {{clip: 1}}}}"
)
"""`federation.privacy` as hints and new configurations propose it: the noise follows from epsilon, on any rows."""


class StepsConfig(Section):
    """`federation.privacy.steps`: noise on the steps of bottom models, so that other rows' embeddings reveal nothing.

    Every row's share of a gradient is clipped to C_0, and their sum gets N(0, (2 sigma C_0)^2 / cost) in every entry:
    the Gaussian mechanism (Abadi et al. 2016), with sensitivity 2 C_0 if a row has other features.

    With `rate` the rows of a step are not those of the announced batch: each party draws them in secret among all rows
    whose duals it holds, and the noise is N(0, (sigma_0 C_0)^2) (common/privacy/accounting/sampled.py).
    """

    clip: float = Field(gt=0, description="C_0, the largest L2 norm of a row's gradient at all of a bottom model")
    cost: float = Field(default=0.1, gt=0, le=1e6, description="privacy cost of a step, in releases of an embedding")
    rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="q, probability that a step draws a row, known to the party alone; left out, steps are on "
        "the announced batch",
    )
    noise_multiplier: float | None = Field(
        default=None, ge=0.1, le=1e4, description="with rate: sigma_0, the steps' noise in units of `clip`; not `cost`"
    )

    @model_validator(mode="after")
    def _enough_said(self) -> StepsConfig:
        where = "federation.privacy.steps"
        if (self.rate is None) != (self.noise_multiplier is None):
            given, other = ("rate", "noise_multiplier") if self.rate is not None else ("noise_multiplier", "rate")
            raise ConfigError(
                f"{where}.{given} without {other}",
                hint="give both, and steps draw their rows in secret; or cost, and they are on the announced batch",
            )
        if self.rate is not None and "cost" in self.model_fields_set:
            raise ConfigError(
                f"{where}.cost with rate: what a step over secretly drawn rows costs follows from rate and "
                "noise_multiplier",
                hint="leave one of the two out",
            )
        return self

    @property
    def left_out(self) -> frozenset[str]:
        """Keys that are not written beside the others: `cost`, where `rate` sets what a step costs."""
        return frozenset() if self.rate is None else frozenset({"cost"})


class AdaptivePrivacyConfig(NoiseConfig):
    """Every embedding is brought into a region of diameter 2t and gets noise from N(0, 4 sigma^2 t^2): Eq. 2.

    Neighbours differ in the features of one row. With `steps` epsilon covers everything that is sent. Without, it
    covers that row's own embeddings, given the models that made them, and the rest is unbounded: a row changes the
    models, and through them the embeddings of all other rows. One of `noise_multiplier`, `release_epsilon` and
    `epsilon` sets the noise; `epsilon` next to another is a budget, at which the run ends.
    """

    protects: ClassVar[str] = "embeddings"
    unit: ClassVar[str] = "embedding"

    mechanism: Literal["adaptive"] = Field(description="the mechanism, which decides the other keys of this section")
    clip: float = Field(gt=0, description="t, half the diameter of the region that embeddings are brought into")
    release: RegionName = Field(default="ball", description="region that embeddings are brought into")
    rescale: Literal["none", "paper", "released"] = Field(
        default="none",
        description="growth of embeddings that crowd together: by their own distances (Eq. 4, a heuristic without "
        "a proof), or by those of what was released before",
    )
    shrink: bool = Field(default=False, description="whether rescale: paper may also make embeddings smaller, as Eq. 4")
    release_epsilon: float | None = Field(
        default=None, gt=0, description="the paper's epsilon, of a single release; sigma is found from it"
    )
    delta: float = Field(gt=0, lt=1, description="probability beside epsilon and release_epsilon")
    steps: StepsConfig | None = Field(default=None, description="noise on the steps of bottom models; left out, none")

    @property
    def adjacency(self) -> Literal["row"]:
        """Neighbours: the same data with other features in one row."""
        return "row"

    def training_cost(self, steps: int) -> int:
        """As above: Renyi costs are proportional to 1 / sigma^2, so that they add up in this unit."""
        if self.steps is None or self.steps.rate is not None:  # secretly drawn rows are counted by themselves
            return PARTS
        return PARTS + steps * math.ceil(Fraction(str(self.steps.cost)) * PARTS)

    @property
    def heuristic(self) -> str:
        """Unproven settings: the paper's factor depends on private rows, and lets embeddings leave the region."""
        return "rescale = paper, a heuristic without a proof" if self.rescale == "paper" else ""

    @property
    def unbounded(self) -> str:
        """Without noise on the steps, models leak a row through other rows' embeddings."""
        return "" if self.steps else UNBOUNDED

    @model_validator(mode="after")
    def _enough_said(self) -> AdaptivePrivacyConfig:
        if self.noise_multiplier is None and self.release_epsilon is None and self.epsilon is None:
            raise ConfigError(
                "federation.privacy: none of noise_multiplier, release_epsilon and epsilon is there",
                hint="give epsilon, that of the whole run, from which the noise is found, such as 8; `colonnade check` "
                "prints what the others come to",
            )
        if self.noise_multiplier is not None and self.release_epsilon is not None:
            raise ConfigError(
                "federation.privacy: both noise_multiplier and release_epsilon are there",
                hint="one follows from the other",
            )
        if self.rescale != "none" and not self.release.endswith("ball"):
            raise ConfigError(
                f"federation.privacy.rescale = {self.rescale} with release = {self.release}: on a sphere every "
                "embedding has its full length already",
                hint="leave rescale out, or take release: ball",
            )
        if self.steps is not None and self.heuristic:
            raise ConfigError(
                f"federation.privacy.steps: it proves nothing beside {self.heuristic}", hint="leave it out"
            )
        if self.steps is not None and self.steps.rate is not None:
            if self.accounting != "exact":
                raise ConfigError(
                    f"federation.privacy.steps.rate with accounting = {self.accounting}: steps over secretly drawn "
                    "rows are added up exactly",
                    hint="leave accounting out",
                )
            if self.delta < LEAST_DELTA:
                raise ConfigError(
                    f"federation.privacy.delta = {self.delta:g} with steps.rate: expected at least {LEAST_DELTA:g}, "
                    "which convolutions still resolve",
                    hint="give a larger delta, or leave steps.rate out",
                )
        if self.shrink and self.rescale != "paper":
            raise ConfigError("federation.privacy.shrink: it belongs to rescale: paper", hint="leave it out")
        return self


_WHERE = "federation.privacy"
_SPREAD = 16.0  # how much likelier the code than all others together is to be released: groups are the larger


class DiscretePrivacyConfig(Section):
    """A row of a party is released once, as one of k codes, by subset selection (common/privacy/subsets.py).

    Neighbours differ in one row: other features, or another label. What a training row leaves is its part in the
    encoder, trained by DP-SGD over secretly drawn rows (common/privacy/accounting/sampled.py), and one code. Every
    other row leaves one code only. So `epsilon` bounds everything that a party sends of a row, at `delta`.
    """

    mechanism: Literal["discrete"] = Field(description="the mechanism, which decides the other keys of this section")
    epsilon: float = Field(gt=0, description="of a row at a party: of its code, and of its part in the encoder")
    encoder: float | None = Field(
        default=None, gt=0, description="part of epsilon that the encoder takes of training rows; left out, half of it"
    )
    counts: float | None = Field(
        default=None,
        gt=0,
        description="part of epsilon that noisy counts of what the encoder names take of training rows, where there "
        "are fewer codes than classes: the server groups classes by them; left out, none, and groups by a fixed rule",
    )
    held_out: float | None = Field(
        default=None,
        gt=0,
        description="epsilon of the code of a row that the encoder did not learn from: validation, test, predictions; "
        "left out, all of epsilon",
    )
    delta: float = Field(default=1e-6, ge=1e-9, lt=1, description="probability beside epsilon, of the encoder alone")
    codes: int | None = Field(
        default=None,
        description="k, number of codes: a multiple of the classes (a class, and how sure it is), or fewer, of which "
        "each stands for a group of classes; left out, by the classes, the parties and held_out",
    )
    size: int | None = Field(
        default=None, ge=1, description="number of codes in a released set; left out, the most informative"
    )
    seeded: bool = Field(default=False, description="draws from the federation's seed: for tests, protects nothing")

    protects: ClassVar[str] = "codes"
    unit: ClassVar[str] = "code"
    adjacency: ClassVar[Literal["row"]] = "row"
    accounting: ClassVar[Literal["exact"]] = "exact"
    evaluate: ClassVar[Literal["released"]] = "released"
    clip: ClassVar[float] = 1.0
    """C of the encoder's gradients. Its inputs have a norm of 1 at most, so that few are clipped."""
    once: ClassVar[None] = None
    rescale: ClassVar[Literal["none"]] = "none"
    steps: ClassVar[None] = None
    noise_multiplier: ClassVar[None] = None
    rounds: ClassVar[None] = None
    predictions: ClassVar[int] = 0
    heuristic: ClassVar[str] = ""
    unbounded: ClassVar[str] = ""

    def training_cost(self, steps: int) -> int:  # noqa: ARG002
        """One release: a row is released only once."""
        return PARTS

    @property
    def of_encoder(self) -> float:
        return self.epsilon / 2 if self.encoder is None else self.encoder

    @property
    def of_training(self) -> float:
        """Epsilon of a training row's code."""
        return self.epsilon - self.of_encoder - (self.counts or 0.0)

    @property
    def of_held_out(self) -> float:
        """Epsilon of any other row's code."""
        return self.epsilon if self.held_out is None else self.held_out

    @model_validator(mode="after")
    def _adds_up(self) -> DiscretePrivacyConfig:
        if self.of_training <= 0:
            counts = "" if self.counts is None else f" and counts = {self.counts:g}"
            raise ConfigError(
                f"{_WHERE}.encoder = {self.of_encoder:g}{counts} of epsilon = {self.epsilon:g}: nothing is left for a "
                "training row's code",
                hint="give the encoder less than epsilon, or leave it out, for half of it",
            )
        if self.of_held_out > self.epsilon:
            raise ConfigError(
                f"{_WHERE}.held_out = {self.of_held_out:g}: above epsilon = {self.epsilon:g}, which is of every row",
                hint="raise epsilon to it, or leave held_out out, for all of epsilon",
            )
        if self.codes is not None and self.codes < 2:
            raise ConfigError(
                f"{_WHERE}.codes = {self.codes}: one code tells nothing about a row",
                hint="give 2 at least, or leave it out",
            )
        if self.codes is not None and self.size is not None and self.size >= self.codes:
            raise ConfigError(
                f"{_WHERE}.size = {self.size}: a set of all {self.codes} codes says nothing",
                hint=f"give 1 to {self.codes - 1}, or leave it out",
            )
        return self

    def count(self, classes: int, parties: int) -> int:
        """k, as configured or by the rule: as many codes as a released set can still distinguish.

        Two degrees of certainty per class if released sets are correct often enough for that many codes; else one code
        per class; else groups of classes, enough for all parties together to identify a class. Raises ConfigError if
        the configured number is neither a multiple of the classes nor below their number.
        """
        if self.codes is None:
            most = 1 + math.exp(min(self.of_held_out, 30.0)) / _SPREAD
            found = [count for count in (2 * classes, classes) if count <= most]
            least = math.ceil(round(classes ** (1 / parties), 6))
            return found[0] if found else min(classes, max(2, least, int(most)))
        if self.codes > classes and self.codes % classes:
            raise ConfigError(
                f"{_WHERE}.codes = {self.codes} with {classes} classes: expected a multiple of the classes, or fewer",
                hint=f"give {self.codes // classes * classes}, or leave codes out",
            )
        return self.codes


NoisyPrivacyConfig = PrivacyConfig | AdaptivePrivacyConfig
AnyPrivacyConfig = NoisyPrivacyConfig | DiscretePrivacyConfig


def number_of_codes(config: object, classes: int, parties: int) -> int:
    """k of a federation; two per class unless the mechanism is discrete."""
    return config.count(classes, parties) if isinstance(config, DiscretePrivacyConfig) else 2 * classes


def _mechanism(value: Any) -> str:
    if not isinstance(value, Mapping | NoiseConfig | DiscretePrivacyConfig):
        raise ConfigError(
            f"federation.privacy{shown(value)}: expected keys and values", hint="{mechanism: gaussian, ..}"
        )
    name = str(value.get("mechanism", "gaussian") if isinstance(value, Mapping) else getattr(value, "mechanism", ""))
    if name not in MECHANISMS:
        said = f"federation.privacy.mechanism = {name!r}: unknown mechanism{nearest(name, MECHANISMS)}"
        raise ConfigError(said, hint=f"one of {', '.join(MECHANISMS)}")
    return name


MECHANISMS: Mapping[str, type[AnyPrivacyConfig]] = {
    "gaussian": PrivacyConfig,
    "adaptive": AdaptivePrivacyConfig,
    "discrete": DiscretePrivacyConfig,
}

Privacy = Annotated[
    Annotated[PrivacyConfig, Tag("gaussian")]
    | Annotated[AdaptivePrivacyConfig, Tag("adaptive")]
    | Annotated[DiscretePrivacyConfig, Tag("discrete")],
    Discriminator(_mechanism),
]
"""`federation.privacy`, with the type given by its `mechanism`."""


SENSITIVITY = 2  # of a one-hot vector, in the L1 norm
CONVEX = 0.5  # largest eigenvalue of the covariance of a one-hot vector: above, z of the likelihood is unique

Amount = Annotated[float, Field(ge=1e-6, le=1e6)]


class LabelPrivacyConfig(Section):
    """`server.privacy.labels`: noise on the training labels, given by one of two numbers."""

    mechanism: Literal["laplace", "subset"] = Field(
        default="laplace",
        description="laplace: noise on one-hot labels, as in papers; subset: a random set of classes that leans "
        "towards the label, more informative at the same epsilon",
    )
    epsilon: Amount | None = Field(default=None, description="privacy budget of every training label; or `deviation`")
    deviation: Amount | None = Field(
        default=None, description="laplace: standard deviation of the noise on a one-hot entry; or `epsilon`"
    )
    size: int | None = Field(
        default=None, ge=1, description="subset: number of classes in a set; left out, the most informative"
    )
    prior: bool = Field(
        default=False,
        description="subset: releases a label when its row is first used, still once, as a set that the model's "
        "prediction makes more informative; a tenth of the rows at the start",
    )
    auxiliary: Literal["likelihood", "posterior"] | None = Field(
        default=None,
        description="z of VIMADMM, VIMADMM-J and linear ADMM. likelihood: minimises the loss of the released value; "
        "posterior: cross-entropy to the posterior at the sum, as in papers; left out, likelihood with subset and "
        "rho above .5",
    )
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")

    def likelihood(self, rho: float) -> bool:
        """True if z minimises the loss of the released value; by default only where that is convex."""
        if self.auxiliary is None:
            return self.mechanism == "subset" and rho > CONVEX
        return self.auxiliary == "likelihood"

    @model_validator(mode="after")
    def _one_of_two(self) -> LabelPrivacyConfig:
        if self.mechanism == "subset":
            self._refuse_deviation()
        elif self.prior:
            raise ConfigError(
                "server.privacy.labels.prior = true with mechanism = laplace, which draws no sets of classes",
                hint="give mechanism: subset, or leave prior out",
            )
        elif self.size is not None:
            raise ConfigError(
                f"server.privacy.labels.size = {self.size} with mechanism = laplace, which draws no sets of classes",
                hint="give mechanism: subset, or leave size out",
            )
        if self.prior and self.size is not None:
            raise ConfigError(
                f"server.privacy.labels.size = {self.size} with prior = true, which finds a size for every row",
                hint="leave one of the two out",
            )
        if (self.epsilon is None) == (self.deviation is None):
            given = "neither epsilon nor deviation is" if self.epsilon is None else "both epsilon and deviation are"
            comes_to = f"; deviation = {self.deviation:g} comes to {_of(self.deviation):.2f}" if self.deviation else ""
            raise ConfigError(
                f"server.privacy.labels: {given} given",
                hint=f"give epsilon, from which the noise follows (2 sqrt(2) / deviation), such as 2{comes_to}",
            )
        return self

    def _refuse_deviation(self) -> None:
        if self.deviation is not None:
            raise ConfigError(
                f"server.privacy.labels.deviation = {self.deviation:g} with mechanism = subset, which has no deviation",
                hint=f"give epsilon: {_of(self.deviation):.4g} is that of Laplace noise with this deviation",
            )

    def bits(self, seed: int, after: int = 0) -> Callable[[int], bytes]:
        """Source of the noise after this many releases: the operating system, or the seed."""
        if not self.seeded:
            return os.urandom
        return random.Random(f"{seed}/labels/{after}" if after else f"{seed}/labels").randbytes  # noqa: S311  # asked for


def _of(deviation: float) -> float:
    """Epsilon of noise with this standard deviation."""
    return SENSITIVITY * math.sqrt(2) / deviation


class ResponseNoiseConfig(Section):
    """`server.privacy.answers`: noise on responses to the parties."""

    clip: Amount = Field(description="C, the largest L2 norm of a row's share of a response")
    head_clip: Amount = Field(description="C_0, the largest L2 norm of a row's gradient at the server's parameters")
    noise_multiplier: Amount = Field(description="sigma, standard deviation of the noise in units of C and of C_0")
    delta: float = Field(default=1e-6, gt=0, lt=1, description="probability beside epsilon; below 1 / training rows")
    accounting: Accounting = Field(default="exact", description="how releases add up: exactly, or by Renyi's bound")
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")


class ServerPrivacyConfig(Section):
    """Privacy of the server's own data."""

    labels: LabelPrivacyConfig | None = Field(default=None, description="noise on the training labels, drawn once")
    answers: ResponseNoiseConfig | None = Field(
        default=None, description="noise on all responses to the parties, in protocols that support it"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> ServerPrivacyConfig:
        if self.labels is not None and self.answers is not None:
            raise ConfigError(
                "server.privacy: both labels and answers are given; results of noisy labels are already protected",
                hint="take one of the two: a second noise on the same labels costs accuracy and protects no other",
            )
        return self
