"""FedVS: the exact sum of all embeddings, from the fastest parties' coded responses.

Li, Yao, Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated Learning for Split Models" (ICML
2023), Algorithm 1. N parties with polynomial networks (Eq. 1), K segments of rows, T masks, a field of p elements; R =
2 (K + T - 1) + 1 responses are enough.

    once:
      2-5 party n    X_n = Round(2^lx [x, x^2 .. x^D, 1]) in the field, its rows cut into K segments
      6-8 party n    T random masks; the share F_n(alpha_j) of segments and masks (Eq. 2), sealed -> party j
    for each round t: server and parties derive the coded batch B(t): K |B| real rows
     15 party n    W_n rounded at random to multiples of 2^-lw (Eq. 3)
     16-18 party n T random masks; the share G_n(alpha_j) (Eq. 4), sealed                        -> party j
        party j    senders it could decrypt                                                      -> server
        server     the set of senders that this round sums over, signed                          -> all
        party j    notes the set on its disk, and refuses one that is too small, or another than the round had before
        party j    unless the set can only be all: a proof for each other party that it was told it      -> server
        server     the proofs, once floor((N + T) / 2) + 1 parties have sent theirs                      -> all
        party j    answers if that many parties were told the same set
     23 party j    H_j = sum_n F_n(alpha_j)[B] G_n(alpha_j) (Eq. 5)                               -> server
     27-30 server  from the first R: psi(beta_k) = sum_n X_n,k W_n (Eq. 6), 1/N of it in the reals (Eq. 7)
     31 server     one step on its model; the gradient at the average embedding                  -> all
     34 party n    back-propagates 1/N of that, one step on W_n

Sealed shares are relayed by the server, which cannot open them: one bundle per party and round.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.integers import CodeParameters, PrimeField, agreed_parameters
from colonnade.common.aggregation.masked_sums import check_smallest_set
from colonnade.common.aggregation.messages import AGREEMENT, SetProof, SetProofs, agreement_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import INTERACTING, Defaults, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.crypto.lengths import OVERHEAD
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.messaging.fields import MaskedTensor, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

if TYPE_CHECKING:
    from colonnade.common.crypto.sealing import Session

LARGEST_EVALUATION = 1 << 15  # coded rows evaluated together, if responses are masked


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    whole: ClassVar[bool] = True
    defaults: ClassVar[Defaults] = Defaults(model={"name": "polynomial", "clip": 3}, joint=INTERACTING)

    name: Literal["fedvs"] = Field(default="fedvs", description="the protocol")
    embedding: int = Field(default=64, ge=1, description="width of every party's embedding")
    segments: int | Literal["auto"] = Field(
        default="auto", description="K, segments that the rows are divided into; auto: as many as `stragglers` allows"
    )
    stragglers: int | None = Field(
        default=None,
        ge=0,
        description="parties that a round need not wait for, where K is auto; left out, 1 if there are parties enough",
    )
    masks: int = Field(default=1, ge=1, description="T, parties that may collude and learn nothing")
    prime: int = Field(default=2147483647, ge=3, description="p, elements of the field")
    data_bits: int = Field(default=6, ge=0, le=24, description="l_x: data are rounded to multiples of 2^-l_x")
    weight_bits: int = Field(default=9, ge=0, le=24, description="l_w: weights are rounded to multiples of 2^-l_w")
    masked_answers: bool = Field(
        default=True, description="the server learns the sums and nothing else of the answers that it decodes"
    )
    columns: int = Field(default=4096, ge=1, description="the most columns of a party's data, powers and bias included")
    chunk: int = Field(default=1024, ge=1, description="coded rows that are shared at a time")

    def most_segments(self, parties: int, stragglers: int) -> int:
        """The largest K with N - R >= stragglers; below 1 if there is none."""
        return (parties - stragglers - 1) // 2 + 1 - self.masks

    def confirming(self, parties: int) -> int:
        """q, the parties that must confirm a set before any answers: no two sets have q confirmations if T parties
        lie.
        """
        return (parties + self.masks) // 2 + 1

    def coded_batch(self, batch: int, parties: int) -> int:
        """Coded rows of a batch: floor(batch / K), one at least."""
        return max(1, batch // self.code(parties).segments)

    def code(self, parties: int) -> CodeParameters:
        """The agreed code for a number of parties.

        Raises ConfigError if there are too few parties, p is no prime, or too small.
        """
        segments = self._segments(parties)
        try:
            return agreed_parameters(PrimeField(self.prime), segments, self.masks, parties)
        except InputError as unfit:
            raise ConfigError(f"federation.protocol: {unfit}", hint=unfit.hint) from None

    def _segments(self, parties: int) -> int:
        if self.segments != "auto":
            return self.segments
        least = 2 * self.masks + 1  # R where K = 1
        most = self.most_segments(parties, int(parties > least) if self.stragglers is None else self.stragglers)
        if most < 1 and least <= parties:
            raise ConfigError(
                f"federation.protocol.stragglers = {self.stragglers}: with masks = {self.masks} at least {least} of "
                f"the {parties} parties must answer in every round",
                hint=f"take stragglers up to {parties - least}, or more parties",
            )
        return max(most, 1)  # if even one segment is too many, the code raises the error


@message
class Prepared(PartyMessage):
    """Party to server: the number of the data sharing that it still holds, or ""; and the columns of its data.

    Args:
        held: the number of that sharing, or "".
        columns: number of quantised columns: powers of its features, and one for the bias.
    """

    held: str
    columns: int


@message
class Preparation(ServerMessage):
    """Server to party: the number of the valid sharing, whether to make it now, and every party's columns.

    Args:
        sharing: its number.
        anew: whether data shares are to be made now.
    """

    alike: ClassVar[Alike | None] = Alike(("sharing", "anew", "columns"))

    sharing: str
    anew: bool
    columns: Annotated[Tensor, TensorSpec("parties", dtype="int64")]


@message
class Shares(PartyMessage):
    """Party to server: a sealed share for every other party, in the roster's order, uint8 (others, box).

    `stage` is the chunk while data are shared; then 0 in training and 1 in the evaluations after it.

    Args:
        stage: data: the chunk; model: 0 for training, 1 for the evaluations after it.
        boxes: in the roster's order without the sender.
    """

    stage: int
    boxes: Annotated[MaskedTensor, TensorSpec("parties", "box", dtype="uint8")]


@message
class Bundle(ServerMessage):
    """Server to party: the boxes for it, concatenated, and the length of each, 0 where there is none.

    Args:
        lengths: 0 for the receiver, and for parties that sent none.
    """

    stage: int
    boxes: Annotated[Tensor, TensorSpec("bytes", dtype="uint8")]
    lengths: Annotated[Tensor, TensorSpec("parties", dtype="int64")]


@message
class Opened(PartyMessage):
    """Party to server: 1 for each party whose share of a stage it has, else 0."""

    stage: int
    senders: Annotated[Tensor, TensorSpec("parties", dtype="uint8", public="which boxes came and could be opened")]


@message
class Senders(ServerMessage):
    """Server to party: 1 for each party whose model a stage sums, else 0; and the server's signature.

    Args:
        signature: the server's; empty on loopback without TLS.
    """

    alike: ClassVar[Alike | None] = Alike(("senders",), key=("stage",))

    stage: int
    senders: Annotated[Tensor, TensorSpec("parties", dtype="uint8")]
    signature: Annotated[Tensor, TensorSpec("signature", dtype="uint8")]


@message
class Answer(PartyMessage):
    """Party to server: H_j of a block of coded rows, elements of the field as int32 (coded, width).

    `senders` is the hash of the summed set: answers for different sets cannot be decoded together. An answer without
    rows means that the party answers for no block of the stage.

    Args:
        senders: hash of the stage's set of senders.
    """

    stage: int
    block: int
    senders: str
    h: Annotated[MaskedTensor, TensorSpec("coded", "width", dtype="int32")]


@message
class Gradient(ServerMessage):
    """Server to party: the gradient of the batch's mean loss at the average embedding, float32 (rows, width).

    Rows are the batch's real rows, in segment order.
    """

    alike: ClassVar[Alike | None] = Alike(("dh",))

    dh: Annotated[Tensor, TensorSpec("rows", "width")]


def hash_of(senders: Tensor) -> str:
    """Hash of a set of senders, uint8 (parties,)."""
    return hashlib.sha256(bytes(senders.tolist())).hexdigest()[:16]


def signed_senders(session: Session, round: int, stage: int, senders: Tensor) -> bytes:
    """Bytes that the server signs when it announces a set."""
    return session.transcript("senders", round, stage, bytes(senders.tolist()).hex())


def place(round: int, stage: int) -> int:
    """Key of a stage's set in the record of sets: every stage of a round has its own set."""
    return 2 * round + stage


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    parties = len(federation.names)
    masked = LARGEST_EVALUATION if config.masked_answers else 0
    elements = max(config.chunk * config.columns, (config.columns + masked) * config.embedding)
    box = 4 * elements + OVERHEAD
    rows = max(federation.batch, config.code(parties).segments)
    sizes = {"rows": rows, "coded": rows, "width": config.embedding, "box": box, "bytes": parties * box}
    return {**sizes, **agreement_limits(parties)}


def check(federation: FederationConfig, config: Config) -> None:
    """Rejects incompatible settings. Raises ConfigError."""
    config.code(len(federation.names))
    check_smallest_set(federation)
    if federation.privacy is not None:
        raise ConfigError(
            "federation.privacy with the protocol fedvs: elements of a field cannot be clipped and noised",
            hint="leave it out; what the coding hides and what not is in docs/protocols/fedvs.md",
        )
    if said := federation.compress.of_parties:
        raise ConfigError(
            f"federation.compress.{said} with the protocol fedvs: parties send sealed boxes and "
            "elements of a field, which lose their meaning with any of their bits",
            hint="leave it out; compress.down makes the gradients smaller, and only them",
        )
    if federation.absence != "rollback":
        raise ConfigError(
            f"federation.absence = {federation.absence}: a party that comes back needs new keys, and everybody's",
            hint="leave it at rollback; parties that are merely slow are what `stragglers` is for",
        )


CONTRACT = Contract(
    title="FedVS: exact sums of embeddings from the fastest parties, by Lagrange coded computing",
    source="Li, Yao, Liu 2023, Algorithm 1",
    config=Config,
    messages=(
        *AGREEMENT,
        Prepared,
        Preparation,
        Shares,
        Bundle,
        Opened,
        Senders,
        SetProof,
        SetProofs,
        Answer,
        Gradient,
    ),
    limits=limits,
    exchange=Exchange("coded", "gradients"),
    in_step=True,
    sees={
        "server": "the sum of all parties' embeddings, from which columns can be estimated too; boxes that it cannot "
        "open; with `masked_answers: false`, of the answers that it decodes, more than the sum "
        "(docs/protocols/fedvs.md)",
        "party": "shares of the others' data and models, of which T together say nothing; the gradient at the average "
        "embedding, which carries information about the labels",
    },
    check=check,
)
