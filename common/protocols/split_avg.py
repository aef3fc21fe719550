"""Split learning with one global embedding: the parties' average, maximum or concatenation.

Li, Yao, Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated Learning for Split Models"
(2023), Sections 2.1 and 3: the computation of FedVS in the clear. It is the baseline of its Section 6.2 with four
treatments of stragglers: wait, ignore (`federation.quorum`), wait with noise (`federation.privacy`), and asynchronous
(`arrivals`).

    for each round t:
        server and parties derive the batch B(t)
      1   party n    H_n = g_n(X_n; W_n) for the batch                -> server
      2   server     H = 1/N sum_n H_n, loss = l(g_0(H; W_0), y); one SGD step on W_0
      3   server     dH = d loss / d H, before that step, and N       -> every party, the same
      4   party n    dH_n = dH / N, back-propagated through g_n; one step on W_n

With `combine: max` or `concatenate`, H is their elementwise maximum or their concatenation; step 3 then sends each
party its own dH_n, and 1 instead of N.

Asynchronous (`arrivals: true`), which is VAFL as the paper runs it: a party takes its turns i = 1, 2, .. at its own
pace, on its own batch B(i), and waits for the server only:

      1   party n    H_n of B(i), and i                               -> server
      2   server     keeps H_n as party n's last of these rows; as above with everyone's last
                     (zeros where there is none yet)
      3   server     as above                                         -> this party alone
      4   party n    as above, then turn i + 1

A round then has as many arrivals as there are parties. Only a round with an evaluation waits for all parties, subject
to the quorum: turns in progress when it opens are discarded at both ends and repeated.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import INTERACTING, LARGE, SMALL, Defaults, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(LARGE, SMALL, joint=INTERACTING)
    ranks: ClassVar[bool] = True

    name: Literal["split_avg"] = Field(default="split_avg", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    combine: Literal["average", "max", "concatenate"] = Field(
        default="average", description="combination of the parties' embeddings: their average, maximum, or side by side"
    )
    arrivals: bool = Field(
        default=False, description="asynchronous: every party acts when it is ready, instead of all in every round"
    )
    aggregate: Summing = "clear"
    missing: Literal["leave_out", "zero", "last", "skip"] = Field(
        default="leave_out",
        description="a party that did not answer: left out, so that the average is over those who did (side by side, "
        "zeros); or in its place zeros, so that it is over all, its last, or no round; with `arrivals` always its last",
    )

    @property
    def alike(self) -> bool:
        """True if all parties of a round receive the same gradient, that at the average."""
        return self.combine == "average" and not self.arrivals


@message
class Embedding(PartyMessage):
    """Party to server: H_n of the batch of a turn (the round, unless `arrivals`), float32 (rows, width).

    Args:
        turn: the batch's number, from 1.
    """

    turn: int
    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Gradient(ServerMessage):
    """Server to party, with `arrivals`, or where H is no average: the gradient of one party.

    dh / shared is the gradient of the batch's mean loss with respect to H_n, float32 (rows, width).

    Args:
        round: the embedding's round.
        shared: parties that the average is over; 1 without an average.
    """

    shared: int
    dh: Annotated[Tensor, TensorSpec("rows", "width")]


@message
class AverageGradient(ServerMessage):
    """Server to party: the gradient of the batch's mean loss at the average, the same for all parties of the round.

    Args:
        shared: parties that the average is over; dh / shared is the gradient with respect to each H_n.
    """

    alike: ClassVar[Alike | None] = Alike(("shared", "dh"))

    shared: int
    dh: Annotated[Tensor, TensorSpec("rows", "width")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    rows, width = federation.batch, config.embedding
    return {"rows": rows, "width": width, **blinded_limits(federation, rows, width)}


def check(_federation: FederationConfig, config: Config) -> None:
    """Rejects blinding unless the server computes a sum over all present parties."""
    if config.aggregate != "blinded":
        return
    if config.combine != "average" or config.arrivals:
        has = "arrivals = true" if config.arrivals else f"combine = {config.combine}"
        raise ConfigError(
            f"federation.protocol.{has}: only averages over a round's parties can be blinded",
            hint="take combine: average without arrivals, or aggregate: clear",
        )


CONTRACT = Contract(
    title="Split learning with one global embedding: an average, maximum or concatenation; together or as parties come",
    source="Li et al. 2023 (FedVS), Sections 2 and 6",
    config=Config,
    messages=(Embedding, Gradient, AverageGradient, Evaluation, *BLINDED),
    limits=limits,
    exchange=Exchange("embeddings", "gradients"),
    in_step=True,
    check=check,
    sees={
        "server": "every party's embeddings of the training, validation and test rows, in the clear; "
        "blinded, their sums, from which columns can be estimated too",
        "party": "with an average, the gradient at it, the same for all, and how many answered; else the gradient at "
        "its own cut layer; both carry information about the labels",
    },
)
