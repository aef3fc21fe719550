"""What a federation agrees on for its parties' privacy, and what a party insists on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from colonnade.common.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.common.config.federation import FederationConfig

_BLINDED = 3  # parties of a blinded sum; of two, each tells the other's part if it tells its own

Adjacency = Literal["participation", "replace", "row"]
Accounting = Literal["exact", "renyi"]

BEFORE = {"accounting": "renyi", "adjacency": "participation"}
"""What `federation.privacy` meant in version 0.1.0 where it did not say so."""


class NoiseConfig(BaseModel):
    """What every mechanism of `federation.privacy` is told: how much noise, for which budget."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    noise_multiplier: float | None = Field(default=None, description="sigma, the noise's deviation")
    epsilon: float | None = Field(default=None, gt=0, description="the budget of every party")
    delta: float = Field(default=1e-5, gt=0, lt=1)
    accounting: Accounting = Field(
        default="exact", description="how releases add up: exactly, or by Renyi's bound as in papers, which is larger"
    )
    rounds: int | None = Field(default=None, ge=1, description="to spend epsilon over; left out, all of the run's")
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")
    evaluate: Literal["released", "clean"] = Field(
        default="released", description="clean: evaluations without noise, which voids the guarantee"
    )

    @property
    def heuristic(self) -> str:
        """What in the configuration has no proof, or ""."""
        return ""

    @property
    def unbounded(self) -> str:
        """Why no epsilon bounds all that leaves, though each release has one; or ""."""
        return ""

    @field_validator("noise_multiplier")
    @classmethod
    def _some_noise(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ConfigError(
                f"federation.privacy.noise_multiplier = {value:g}: without noise no epsilon is finite",
                hint="give a value above 0, or leave it out and give epsilon; without `privacy` nothing is protected",
            )
        return value


class PrivacyConfig(NoiseConfig):
    """Client-level differential privacy of what parties send (Xie et al. 2024, Section V).

    Every released matrix is clipped to C in its Frobenius norm; every entry gets noise from
    N(0, (sigma C)^2). Either sigma is given, or a budget from which it is found, or both: the run
    then ends before the budget is passed.
    """

    mechanism: Literal["gaussian"] = "gaussian"
    clip: float = Field(gt=0, description="C, the largest Frobenius norm of a message")
    adjacency: Literal["participation", "replace"] = Field(
        default="replace",
        description="what epsilon is about: a party that has other data (sensitivity 2C), or is absent (C)",
    )

    @model_validator(mode="after")
    def _enough_said(self) -> PrivacyConfig:
        if self.noise_multiplier is None and self.epsilon is None:
            raise ConfigError(
                "federation.privacy: neither noise_multiplier nor epsilon is there",
                hint="give sigma, or a budget from which it is found, or both",
            )
        return self


class PolicyConfig(BaseModel):
    """`parties.NAME.policy`: what a party insists on, whatever the federation has agreed on."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    max_epsilon: float | None = Field(
        default=None, gt=0, description="of everything that leaves in a run; between two data sets (`replace`)"
    )
    max_row_epsilon: float | None = Field(
        default=None, gt=0, description="of a row, of everything that leaves in a run; needs federation.privacy.steps"
    )
    row_epsilon_without_steps: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="accept: max_row_epsilon may count a row's own embeddings alone, which bounds nothing else",
    )
    max_delta: float = Field(default=1e-5, gt=0, lt=1, description="beside max_epsilon and max_row_epsilon")
    min_noise_multiplier: float | None = Field(default=None, gt=0)
    protocols: tuple[str, ...] | None = Field(default=None, description="that it takes part in; left out, all")
    min_parties: int | None = Field(
        default=None, ge=1, description="in the roster, and in every sum; left out, 3 in blinded sums and else 1"
    )

    max_other_rows: int | None = Field(
        default=None,
        ge=1,
        description="keys of any other member in an alignment, over all its attempts: against asking for a dictionary",
    )
    max_predicted_rows: int | None = Field(
        default=None, ge=1, description="likewise in all predictions of a run together; left out, max_other_rows"
    )
    min_common_rows: int = Field(default=1, ge=1, description="keys that an alignment must find")

    def refuse(self, party: str, federation: FederationConfig) -> None:
        """Refuses a federation that is weaker than this, as far as its configuration tells.

        Raises:
            ConfigError: naming the rule, what it wants and what the federation has.
        """
        parties, name, privacy = len(federation.parties), federation.protocol.name, federation.privacy
        if self.protocols is not None and name not in self.protocols:
            self.object(party, "protocols", ", ".join(self.protocols), name)
        blinded = getattr(federation.protocol, "aggregate", "clear") == "blinded"
        least = self.min_parties or (_BLINDED if blinded else 1)
        if parties < least:
            self.object(party, "min_parties", least, parties)
        if blinded and federation.blinding.least < least:
            self.object(party, "min_parties", least, f"blinding.least = {federation.blinding.least}")
        for rule in ("max_epsilon", "max_row_epsilon", "min_noise_multiplier"):
            if (wants := getattr(self, rule)) is None:
                continue
            if privacy is None:
                self.object(party, rule, wants, "no federation.privacy")
            elif privacy.adjacency == "row" and rule == "max_epsilon":
                self.object(party, rule, wants, f"mechanism = {privacy.mechanism}, whose epsilon is one row's")
            elif privacy.heuristic:
                self.object(party, rule, wants, privacy.heuristic)
            elif privacy.unbounded and rule == "max_row_epsilon" and self.row_epsilon_without_steps == "refuse":
                self.object(
                    party, rule, wants, f"no federation.privacy.steps: {privacy.unbounded}",
                    hint="agree on federation.privacy.steps; or set row_epsilon_without_steps: accept in your policy, "
                    "which then limits the count of a row's own embeddings alone",
                )  # fmt: skip
            elif privacy.evaluate == "clean":
                self.object(party, rule, wants, "federation.privacy.evaluate = clean")
            elif privacy.seeded:
                self.object(party, rule, wants, "federation.privacy.seeded = true")
            elif rule != "min_noise_multiplier" and privacy.delta > self.max_delta:
                self.object(party, "max_delta", self.max_delta, privacy.delta)

    @staticmethod
    def object(
        party: str,
        rule: str,
        wants: object,
        has: object,
        hint: str = "agree on a stronger federation, or change your policy",
    ) -> NoReturn:
        """Raises the ConfigError that every broken rule ends in."""
        said = f"parties.{party}.policy.{rule} = {wants}: the federation has {has}"
        raise ConfigError(said, hint=hint, told=said)  # the others have to agree on something else
