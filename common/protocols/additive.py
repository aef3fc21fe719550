"""Additive models: one shape function per column, boosted from encrypted and masked sums that return to their owner.

Generalised additive models (Hastie and Tibshirani 1986) boosted as explainable boosting machines are (Lou, Caruana and
Gehrke 2012; Nori, Jenkins, Koch and Caruana 2019), all columns at once, over columns of several parties. A score is

    start + Σ_k Σ_j shape_kj(x_kj),   j a column of party k, or a pair of its columns.

    once in a session
      1   party k    how many bins it has; members: a nonce each                                 -> server
      2   party k    H = M A + u a_d + e': its rows' bins M, encrypted                           -> server
          both       a probe of the hint (common/encryption/probe.py)
    for each round t
      3   server     c = A s + e + Δ m, for m = g and h of the training rows                      -> every party
      4   party k    M c + u c_d + r, r uniform                                                  -> server
      5   server     that less H s, and a noise                                                  -> party k
      6   party k    subtracts r, rounds: M g and M h, the sums over its own bins; a step of its shape functions
      7   party k    what that changes in the scores of all rows, blinded                        -> server
      8   server     adds up the changes; if the loss rises, the round does not count, and steps get shorter;
                     the newest round of every party whose step counts                           -> every party

**The server learns** the blinded sums of step 7 and the numbers of bins: no sum over a bin, no row's bin, and no
party's own scores, whatever vectors it sends, since r is uniform. **A party learns** M g and M h of its own bins in
every round, which is a function of the positives in each bin and of those that the model expects there: exact label
counts by bin, however long it trains, and no other party's columns.

Steps are whole multiples of STEP, so that sums of changes are exact: scores in training and in a prediction, encrypted
and in the clear, are equal to the last bit.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.integers import RingSize
from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.boosting import ROWS, BoostedConfig, check_boosted, scores_of
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.encryption.messages import RETURNED, SUMMED, sum_limits
from colonnade.common.encryption.parameters import PROBES
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

STEP = 2.0**-16
"""Unit of shape functions."""


class Config(BoostedConfig):
    """Keys under `federation.protocol`."""

    name: Literal["additive"] = Field(default="additive", description="the protocol; a round is a step of every shape")
    aggregate: Summing = Field(
        default="blinded", description="clear: the server sees each party's scores, and not their sum alone"
    )
    min_hessian: float = Field(default=2.0, gt=0, description="least sum of Hessians of a run of bins")
    leaves: int = Field(default=3, ge=2, le=16, description="most runs of neighbouring bins with one step, per column")
    pairs: int = Field(
        default=0, ge=0, le=64, description="most pairs of a party's own columns that take a step in a round"
    )


@message
class Counted(ServerMessage):
    """Server to party: for each party the newest round whose step is in the scores, int64 (parties,); 0 for none."""

    alike: ClassVar[Alike | None] = Alike(("rounds",))

    rounds: Annotated[Tensor, TensorSpec("parties", dtype="int64")]


@message
class Change(PartyMessage):
    """Party to server, for sums in the clear: the change of its scores of all rows, float32 (all, scores)."""

    d: Annotated[Released, TensorSpec("all", "scores")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:  # noqa: ARG001  # the interface's
    """The largest value of every dimension."""
    scores = scores_of(federation)
    return {
        **sum_limits(federation, max(2 * scores, PROBES)),
        **blinded_limits(federation, ROWS // scores, scores),
        "all": ROWS // scores,
        "scores": scores,
    }


def check(federation: FederationConfig, config: Config) -> None:
    """Refuses settings that exclude exact sums."""
    check_boosted(federation, "scores")
    parties, blinding = len(federation.parties), federation.blinding
    if config.aggregate == "blinded" and RingSize(blinding.bound, parties, blinding.bits).scale < 1 / STEP:
        raise ConfigError(
            f"federation.blinding: sums of {parties} numbers in ±{blinding.bound:g} have steps of more than {STEP:g}",
            hint="set federation.blinding.bits: 64, or lower federation.blinding.bound",
        )


CONTRACT = Contract(
    title="Additive model: boosted shape functions of single columns, from sums that only their owner sees",
    source="Hastie and Tibshirani 1986; Lou et al. 2012",
    config=Config,
    messages=(*SUMMED, *RETURNED, Counted, Change, *BLINDED),
    limits=limits,
    exchange=Exchange("logits", "sums"),
    in_step=True,
    vectors=lambda federation, _config: 2 * scores_of(federation),
    check=check,
    sees={
        "server": "sums over the parties of what their columns add to the scores of all rows (in the clear: each "
        "party's), from which columns can be estimated; no sum over a bin",
        "party": "how many of the training rows in each bin of its own columns are of each class, and how many the "
        "model expects; with `gradients: clear` also GRADIENTS OF ALL TRAINING ROWS",
    },
)
