"""`parties.NAME.policy`: requirements of one party."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, NoReturn

from pydantic import Field

from colonnade.common.config.federation import FederationConfig, Recovery
from colonnade.common.config.privacy import Privacy
from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

_BLINDED = 3  # parties of a blinded sum; of two, each reveals the other's term if it reveals its own


class PolicyConfig(Section):
    """`parties.NAME.policy`: requirements of one party on the federation's agreed section."""

    max_epsilon: float | None = Field(
        default=None, gt=0, description="largest epsilon of all that the party sends in a run, if its data were others"
    )
    max_row_epsilon: float | None = Field(
        default=None,
        gt=0,
        description="largest epsilon of a row, of all that the party sends in a run; needs federation.privacy.steps",
    )
    row_epsilon_without_steps: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="accept: max_row_epsilon may count a row's own embeddings alone, which bounds nothing else",
    )
    max_delta: float = Field(
        default=1e-5, gt=0, lt=1, description="largest delta beside max_epsilon and max_row_epsilon"
    )
    min_noise_multiplier: float | None = Field(
        default=None, gt=0, description="smallest noise, as federation.privacy.noise_multiplier"
    )
    min_colluders: int = Field(
        default=1,
        ge=0,
        description="where a rule above limits epsilon or noise: fewest colluding parties that federation.privacy.once "
        "must allow for; 0 trusts all other parties",
    )
    protocols: tuple[str, ...] | None = Field(
        default=None, description="protocols that the party takes part in; left out, all"
    )
    min_parties: int | None = Field(
        default=None, ge=1, description="parties in the roster and in every sum; left out, 3 in blinded sums and else 1"
    )
    blinded: bool = Field(
        default=False,
        description="true: the party takes part only where the server is shown sums over parties, and no party's own "
        "values",
    )
    recovery: tuple[Recovery, ...] | None = Field(
        default=None,
        min_length=1,
        description="where sums are blinded: values of federation.blinding.recovery that the party takes part in, as "
        "[none, colluding] without alone; left out, all",
    )
    max_other_rows: int | None = Field(
        default=None,
        ge=1,
        description="most keys of any other member in an alignment, over all attempts: limits dictionary attacks",
    )
    max_predicted_rows: int | None = Field(
        default=None,
        ge=1,
        description="most keys of any other member in all predictions of a run; left out, max_other_rows",
    )
    min_common_rows: int = Field(default=1, ge=1, description="fewest common keys that an alignment must find")
    min_predicted_rows: int | None = Field(
        default=None,
        ge=1,
        description="fewest common keys that an alignment for a prediction must find; left out, min_common_rows",
    )
    max_vectors: int | None = Field(
        default=None,
        ge=1,
        description="with sums under encryption: vectors of the server over which the party adds up in a run, "
        "repeated rounds included; left out, twice those that the run needs",
    )
    max_splits: int | None = Field(
        default=None,
        ge=1,
        description="with boosted trees: splits of its columns for which the party says on which side every row is in "
        "a run, repeated rounds included; left out, twice those that the run's trees can have",
    )
    share_iv: bool = Field(
        default=False,
        description="in a scorecard: the server may see the information values of the party's columns, by number, of "
        "which federation.protocol.top keeps some; false: all columns stay that reach min_iv",
    )
    reuse_alignment: bool = Field(
        default=True,
        description="false: rows are aligned anew for every run and prediction, with secrets drawn for it alone",
    )

    @property
    def alignment_digest(self) -> bytes:
        """32 bytes that change with any rule about alignments: a kept one holds under the same rules only."""
        rules = [self.min_common_rows, self.max_other_rows, self.max_predicted_rows]
        if self.min_predicted_rows is not None:  # the key is newer than alignments that are kept
            rules.append(self.min_predicted_rows)
        return hashlib.sha256(json.dumps(rules).encode()).digest()

    def refuse_few(self, party: str, common: int, *, predicting: bool) -> None:
        """Refuses an alignment that finds too few common keys. Raises ConfigError."""
        rule, least = "min_common_rows", self.min_common_rows
        if predicting and self.min_predicted_rows is not None:
            rule, least = "min_predicted_rows", self.min_predicted_rows
        if common < least:
            hint = "agree on a stronger federation, or change your policy"
            if predicting:
                hint = f"ask for at least {least} ids that all members know, or set policy.min_predicted_rows"
            self.object(party, rule, least, f"{common} common keys", hint=hint)

    def refuse(self, party: str, federation: FederationConfig) -> None:
        """Refuses a federation whose configuration is weaker than this policy.

        Raises:
            ConfigError: names the rule, its requirement and the federation's value.
        """
        parties, name, privacy = len(federation.parties), federation.protocol.name, federation.privacy
        if self.protocols is not None and name not in self.protocols:
            self.object(party, "protocols", ", ".join(self.protocols), name)
        blinded = federation.protocol.blinded
        if self.blinded and not blinded:
            self.object(party, "blinded", "true", f"no blinded sums in {name}")
        least = self.min_parties or (_BLINDED if blinded else 1)
        if parties < least:
            self.object(party, "min_parties", least, parties)
        if blinded and federation.blinding.least < least:
            self.object(party, "min_parties", least, f"blinding.least = {federation.blinding.least}")
        if blinded and self.recovery is not None and federation.blinding.recovery not in self.recovery:
            self.object(
                party, "recovery", ", ".join(self.recovery), f"blinding.recovery = {federation.blinding.recovery}",
                hint=f"agree on federation.blinding.recovery: {' or '.join(self.recovery)}, or change your policy",
            )  # fmt: skip
        for rule in ("max_other_rows", "max_predicted_rows"):
            if federation.keys.seeded and federation.align != "none" and (most := getattr(self, rule)) is not None:
                self.object(party, rule, most, "federation.keys.seeded = true, which hides nothing")
        for rule in ("max_epsilon", "max_row_epsilon", "min_noise_multiplier"):
            if (wants := getattr(self, rule)) is not None:
                self._refuse_privacy(party, privacy, rule, wants)

    def _refuse_privacy(self, party: str, privacy: Privacy | None, rule: str, wants: float) -> None:
        """Refuses agreed privacy that one rule of this policy finds weaker. Raises ConfigError."""
        if privacy is None:
            self.object(party, rule, wants, "no federation.privacy")
        elif privacy.adjacency == "row" and rule == "max_epsilon":
            self.object(party, rule, wants, f"mechanism = {privacy.mechanism}, whose epsilon is one row's")
        elif privacy.mechanism == "discrete" and rule == "min_noise_multiplier":
            self.object(party, rule, wants, "mechanism = discrete, whose codes have no noise multiplier")
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
        elif privacy.once is not None and privacy.once.colluders < self.min_colluders:
            self.object(party, "min_colluders", self.min_colluders, f"once.colluders = {privacy.once.colluders}")
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
        said = f"parties.{party}.policy.{rule} = {wants}: the federation has {has}"
        raise ConfigError(said, hint=hint, shared=said)  # the other members must change the agreement
