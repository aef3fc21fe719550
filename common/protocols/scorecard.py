"""Scorecards: optimal bins, weights of evidence, and a logistic regression of them, over columns of several parties.

A column of party k is cut into fine bins, as in `additive`, then into optimal ones by the labels' sums over these. In a
bin with g of the G goods and b of the B bads (training rows of the positive class), the weight of evidence and the
information value of a column are

    woe = ln (g / G) / (b / B),    IV = Σ (g / G - b / B) woe.

    round 1
      1   server     c of y, 1 for a bad and 0 for a good training row                            -> every party
      2   party k    M c + u c_d + its mask, M: its rows' fine bins                               -> server
      3   server     that less H s, and a noise                                                   -> party k
          party k    bads in each of its fine bins; optimal bins, woe, IV of each of its columns
      4   party k    the IVs, if its policy lets them out; else none                              -> server
      5   server     which of these columns stay                                                  -> party k
    from round 2 on
      6   all        a step of the regression of `hetero_lr`, whose columns are the weights of evidence: its M
                     marks the optimal bins

**The server learns** what it learns in `hetero_lr`, and no bin, sum over a bin or weight of evidence. **A party
learns** how many bads are in each of its fine bins, once, and in every step sums of residuals over its optimal bins.

A party's part of the model is a number of points for each bin. The score of a row is base + Σ points, such that odds of
`odds` goods to a bad have `points`, and `pdo` points more are twice the odds.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.regression import REGRESSION, RegressionConfig, check_regression, regression_limits
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import PartyMessage, ServerMessage, TensorSpec, message


class Config(RegressionConfig):
    """Keys under `federation.protocol`."""

    monotone: ClassVar[bool] = True
    typed: ClassVar[bool] = True
    cards: ClassVar[bool] = True

    name: Literal["scorecard"] = Field(
        default="scorecard", description="the protocol; round 1 makes the bins, another is a step of L-BFGS"
    )
    bins: int = Field(
        default=64, ge=2, le=255, description="most fine bins of a column, besides that of missing values"
    )
    least: int = Field(default=20, ge=1, description="training rows of a fine bin, at least")
    min_iv: float = Field(default=0.02, ge=0, description="information value of a column, below which it is left out")
    top: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="columns that stay, by IV, of those whose IVs policies let out (parties.NAME.policy.share_iv), and "
        "of such a party one at least; left out, all",
    )
    pdo: float = Field(default=20.0, gt=0, description="points that double the odds of a good to a bad")
    points: float = Field(default=600.0, description="score of a row with these odds")
    odds: float = Field(default=50.0, gt=0, description="goods to a bad at that score")

    @property
    def factor(self) -> float:
        """Points per 1 of the log-odds."""
        return self.pdo / math.log(2)

    @property
    def offset(self) -> float:
        """Score of a row with odds of 1."""
        return self.points - self.factor * math.log(self.odds)

    def scale(self, start: float) -> dict[str, Any]:
        """The scale as JSON; `base` is the score at this logit of the second class, without the parties' points."""
        base = self.offset - self.factor * start
        agreed = {"pdo": self.pdo, "points": self.points, "odds": self.odds}
        return {"base": base, "rounded": round(base), **agreed, "factor": self.factor, "offset": self.offset}


@message
class InformationValues(PartyMessage):
    """Party to server: information values of its columns, float64 (columns,), or empty."""

    iv: Annotated[Released, TensorSpec("columns", dtype="float64")]


@message
class Chosen(ServerMessage):
    """Server to party: 1 for each of those columns that stays, uint8 (columns,)."""

    stays: Annotated[Tensor, TensorSpec("columns", dtype="uint8")]


def check(federation: FederationConfig, config: Config) -> None:
    """Refuses other than two classes, and settings that a regression excludes."""
    if federation.task != "classification" or federation.outputs != 2:
        what = "a number" if federation.task == "regression" else f"{federation.outputs} classes"
        raise ConfigError(
            f"{config.name} of {what}: a scorecard is of goods and bads",
            hint="make labels of two classes, or take additive or hetero_lr",
        )
    if 1 in (federation.rounds, federation.epochs):
        raise ConfigError(f"federation.rounds = 1: the first round of {config.name} makes bins", hint="take 50")
    check_regression(federation, config)


CONTRACT = Contract(
    title="Scorecard: optimal bins and a regression of their weights of evidence; every party keeps its points",
    source="Siddiqi 2006; Navas-Palencia 2020",
    config=Config,
    messages=(*REGRESSION, InformationValues, Chosen),
    limits=regression_limits,
    exchange=Exchange("logits", "sums"),
    in_step=True,
    vectors=lambda _federation, _config: 2,
    check=check,
    sees={
        "server": "sums over the parties of what a direction adds to the logits of all rows (in the clear: each "
        "party's), from which columns can be estimated, sums of scalar products of coefficients, and IVs of columns "
        "by number where a party's policy lets them out",
        "party": "how many training rows of each class are in each fine bin of its own columns, and how many the model "
        "expects in each optimal bin",
    },
)
