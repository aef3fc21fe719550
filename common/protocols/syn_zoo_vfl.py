"""Syn-ZOO-VFL: zeroth-order training. All parties in every round send two embeddings each and receive one number.

The synchronous version of Zhang et al., "Desirable companion for vertical federated learning: new zeroth-order
gradient based algorithm" (CIKM 2021), which VFL-CZOFO compares with (its Table 1).

    for each round t:
        server and parties derive the batch B(t)
      1   party m    draws u_m over all its parameters, and keeps it secret;
                     h_m = h(w_m) and h'_m = h(w_m + mu u_m) of the batch                       -> server
      2   server     f, the batch's mean loss with h_1 .. h_M; for each party f'_m, with h'_m in the place of h_m
                     and everyone else's as they are
      3   server     (f'_m - f) / mu                                                            -> party m
      4   server     draws u_0; f_0, the loss at theta_0 + mu u_0; a step of theta_0 down phi (f_0 - f) / mu u_0
      5   party m    a step of w_m down phi (f'_m - f) / mu u_m

All losses of a round are those at theta_0 before step 4. phi is the number of parameters that a direction is over
(`draw: sphere`), or 1 (`draw: normal`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from colonnade.common.config.protocol import Missing
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.pairs import PAIRS, SEES, PairsConfig, check_pairs, pairs_limits


class Config(PairsConfig):
    """Keys under `federation.protocol`."""

    name: Literal["syn_zoo_vfl"] = Field(default="syn_zoo_vfl", description="the protocol")
    missing: Missing = "zero"


CONTRACT = Contract(
    title="Syn-ZOO-VFL: two embeddings up and one number down, all together, without backpropagation",
    source="Zhang et al. 2021, as Wang et al. 2023 (VFL-CZOFO) compare with it",
    config=Config,
    messages=PAIRS,
    limits=pairs_limits,
    exchange=Exchange("pairs", "losses"),
    in_step=True,
    check=check_pairs,
    sees=SEES,
)
