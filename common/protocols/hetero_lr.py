"""Linear, logistic and multinomial regression over the columns of all parties, from residuals that the server encrypts.

Full batch, by L-BFGS whose vectors stay with their owners (common/models/vector_free.py). A party's columns X_k are a
matrix M of small whole numbers, of which the server encrypts the hint and returns the sums as in `additive`
(common/encryption/messages.py). The loss is that of the server's labels plus |B|^2 / (2 C); a round is a step:

    for each round t
      1   server     c of r, the derivatives of the loss by the logits of the training rows       -> every party
      2   party k    M c + u c_d + its mask                                                       -> server
      3   server     that less H s, and a noise                                                   -> party k
          party k    X_k' r; in coordinates in which its part of the Hessian is about 1: g_k
      4   party k    scalar products of its parts of the last steps, gradients' changes and g,
                     blinded                                                                      -> server
      5   server     coefficients of the direction in these                                       -> every party
      6   party k    X_k D_k of all common rows (training, validation, test), and D_k' D_k / C,
                     blinded                                                                      -> server
      7   server     the length of the step with the least loss along the direction               -> every party

**The server learns** the blinded sums of steps 4 and 6: of every direction, and so of the logits. **A party learns**
X_k' r in every round, which is a function of the sums of its columns over the rows of each class and of those that the
model expects there. Coefficients stay with their party.

Hardy et al. 2017 let a third party hold the keys and take the loss's Taylor polynomial; neither is needed, since
the server decrypts and computes the loss itself.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.run_options import POISSON
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.regression import REGRESSION, RegressionConfig, check_regression, regression_limits
from colonnade.common.encryption.messages import PROBE
from colonnade.common.errors import ConfigError

WEIGHT = 8
"""Largest magnitude of an entry of M: digits to base 16 are -8 to 7."""


ERRORS = PROBE + 1
"""Level of a round's sums that standard errors are from."""


class Config(RegressionConfig):
    """Keys under `federation.protocol`."""

    whole: ClassVar[bool] = True
    weighted: ClassVar[bool] = True

    name: Literal["hetero_lr"] = Field(default="hetero_lr", description="the protocol; a round is a step of L-BFGS")
    errors: bool = Field(
        default=False,
        description="standard errors and p-values of each party's coefficients, given the other parties' part: of two "
        "classes or counts, with c: none",
    )


def check(federation: FederationConfig, config: Config) -> None:
    """Refuses settings that exclude exact sums, and standard errors with a penalty."""
    check_regression(federation, config)
    known = federation.task == "classification" or federation.loss == POISSON  # a number's noise is not
    if config.errors and not (config.c == "none" and known and scores_of(federation) == 1):
        raise ConfigError(
            "federation.protocol.errors: standard errors are of two classes or of counts, without a penalty",
            hint="set federation.protocol.c: none, or leave errors out",
        )


CONTRACT = Contract(
    title="Linear and logistic regression, from encrypted residuals; every party keeps its coefficients",
    source="Hardy et al. 2017; Chen et al. 2014",
    config=Config,
    messages=REGRESSION,
    limits=regression_limits,
    exchange=Exchange("logits", "sums"),
    in_step=True,
    check=check,
    sees={
        "server": "sums over the parties of what a direction adds to the logits of all rows (in the clear: each "
        "party's), from which columns can be estimated, and sums of scalar products of coefficients",
        "party": "sums of its own columns over the training rows of each class, and those that the model expects; with "
        "`errors`, sums over products of two of them of how unsure the model is",
    },
)
