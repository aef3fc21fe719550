"""Codes: every row of a party is released once, as one of k codes; the server learns from the codes' likelihoods.

For differential privacy at single-digit epsilons, at which noise on embeddings of every epoch would hide everything.
Linear encoders by DP-SGD over fixed features: Abadi et al. 2016; Tramèr and Boneh 2021. Codes by subset selection: Ye
and Barg 2018. The server's model is naive Bayes.

    for each round t: server and parties derive the batch B(t)
      1   server     until a party's first codes have come: the labels of all training rows, or with private labels
                     distributions over the classes                                                     -> party k
      2   party k    unless it has one, theta_k: a linear encoder of fixed features of its own rows, by DP-SGD over
                     secretly drawn rows
          party k    with `federation.privacy.counts`, noisy counts of what it names rows of every class -> server
          server     groups of classes, of which each has a code                                        -> party k
      3   party k    a set of codes for every row of the batch, which leans towards the row's code      -> server
      4   server     P(code of party k | class) and P(class) by EM over all sets so far; a row's logits are
                     log P(class) + sum_k log sum_code P(code of party k | class) P(set | code)

A row's set is drawn once in a run: in later epochs, after a rollback and in predictions the same one is sent, at no
further cost. Sets of validation and test rows are released alike, in 3. Without `federation.privacy` the same is
computed without noise, and the codes are in the clear: a reference.

**Parties are sent the labels** of all training rows, as far as `server.privacy.labels` lets them be.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.privacy import number_of_codes
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    whole: ClassVar[bool] = True
    few_rounds: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset()

    name: Literal["codes"] = Field(default="codes", description="the protocol")
    steps: int = Field(default=100, ge=2, le=10_000, description="steps of the training of a party's encoder")
    drawn: int = Field(
        default=4096, ge=1, description="expected rows in a step, each drawn independently and in secret; at most all"
    )
    lr: float = Field(default=60.0, gt=0, description="learning rate of the encoders, on inputs of a norm of at most 1")
    iterations: int = Field(default=30, ge=1, description="of EM at the server, in every round")


@message
class Lessons(ServerMessage):
    """Server to party, in every round: how many blocks of labels follow.

    Args:
        blocks: 0, or one for every batch of the training rows.
    """

    blocks: int


@message
class Labels(ServerMessage):
    """Server to party: the classes of a block of training rows, int64 (rows,). Every party receives them.

    Args:
        block: number of the block: rows are in the order of the training part, a batch each.
    """

    alike: ClassVar[Alike | None] = Alike(("y",), key=("block",))

    block: int
    y: Annotated[Tensor, TensorSpec("rows", dtype="int64")]


@message
class Beliefs(ServerMessage):
    """Server to party, for protected labels: what the noisy labels imply, float32 (rows, classes).

    Args:
        block: as above.
        y: distributions over the classes.
    """

    alike: ClassVar[Alike | None] = Alike(("y",), key=("block",))

    block: int
    y: Annotated[Tensor, TensorSpec("rows", "classes")]


@message
class Counts(PartyMessage):
    """Party to server: noisy counts of training rows by class and by the class that its encoder predicts.

    int64 (classes, classes), a row for each class.
    """

    n: Annotated[Released, TensorSpec("classes", "classes", dtype="int64")]


@message
class Groups(ServerMessage):
    """Server to party: the code of every class, int64 (classes,), where there are fewer codes than classes."""

    g: Annotated[Tensor, TensorSpec("classes", dtype="int64")]


@message
class Codes(PartyMessage):
    """Party to server: a set of codes for every row of the batch, as 1 and 0, uint8 (rows, codes)."""

    s: Annotated[Released, TensorSpec("rows", "codes", dtype="uint8")]


@message
class Evaluation(PartyMessage):
    """Party to server: sets of codes for one block of validation or test rows, uint8 (rows, codes)."""

    part: str
    block: int
    s: Annotated[Released, TensorSpec("rows", "codes", dtype="uint8")]


def codes_of(federation: FederationConfig) -> int:
    """k."""
    return number_of_codes(federation.privacy, federation.outputs, len(federation.parties))


def counted(federation: FederationConfig) -> bool:
    """True if the server groups classes by noisy counts."""
    return federation.privacy is not None and federation.privacy.counts is not None


def limits(federation: FederationConfig, _config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "classes": federation.outputs, "codes": codes_of(federation)}


def check(federation: FederationConfig, _config: Config) -> None:
    """Rejects numbers to predict, and noise that is not for codes."""
    if federation.task == "regression":
        raise ConfigError(
            "federation.task = regression with the protocol codes: a code stands for classes",
            hint="predict ranges of the number as classes, or take another protocol",
        )
    if federation.privacy is not None and federation.privacy.protects != "codes":
        raise ConfigError(
            f"federation.privacy.mechanism = {federation.privacy.mechanism} with the protocol codes: not for codes",
            hint="take {mechanism: discrete, epsilon: 8}",
        )
    codes_of(federation)  # refuses a number that does not suit the classes


CONTRACT = Contract(
    title="Codes: every row is released once, as one of a few codes; every party is given the labels",
    source="Ye and Barg 2018; Abadi et al. 2016; Tramèr and Boneh 2021",
    config=Config,
    messages=(Lessons, Labels, Beliefs, Counts, Groups, Codes, Evaluation),
    limits=limits,
    exchange=Exchange("codes", "labels"),
    in_step=True,
    check=check,
    sees={
        "server": "of every training, validation and test row a set of codes, drawn once; with counts, noisy "
        "numbers of what an encoder names rows of each class",
        "party": "THE LABELS of all training rows, or noisy ones",
    },
)
