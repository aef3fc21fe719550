"""ZOO-VFL: asynchronous zeroth-order training. A party sends two embeddings and receives one number.

Zhang, Gu, Dang, Deng, Huang, "Desirable companion for vertical federated learning: new zeroth-order gradient based
algorithm" (CIKM 2021), as VFL-CZOFO compares with it (its Table 1). A party takes its turns i = 1, 2, .. at its own
pace, on its own batch B(i), and waits for the server only:

      1   party m    draws u_m over all its parameters, and keeps it secret;
                     h = h(w_m) and h' = h(w_m + mu u_m) of B(i), and i                         -> server
      2   server     keeps h as party m's last embeddings of these rows; with everyone's last (zeros where there is
                     none yet) f, the batch's mean loss; with h' in this party's place f'
      3   server     (f' - f) / mu                                                              -> this party alone
      4   server     draws u_0; f_0, the loss at theta_0 + mu u_0; a step of theta_0 down phi (f_0 - f) / mu u_0
      5   party m    a step of w_m down phi (f' - f) / mu u_m, then turn i + 1

All losses of a turn are those at theta_0 before step 4. phi is the number of parameters that a direction is over
(`draw: sphere`), or 1 (`draw: normal`).

A round has as many arrivals as there are parties. Only a round with an evaluation waits for all parties, subject to the
quorum: turns in progress when it opens are discarded at both ends and repeated, along another direction.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.pairs import PAIRS, SEES, PairsConfig, check_pairs, pairs_limits


class Config(PairsConfig):
    """Keys under `federation.protocol`."""

    name: Literal["zoo_vfl"] = Field(default="zoo_vfl", description="the protocol")


CONTRACT = Contract(
    title="ZOO-VFL: two embeddings up and one number down, asynchronously, without backpropagation",
    source="Zhang et al. 2021",
    config=Config,
    messages=PAIRS,
    limits=pairs_limits,
    exchange=Exchange("pairs", "losses"),
    check=check_pairs,
    sees=SEES,
)
