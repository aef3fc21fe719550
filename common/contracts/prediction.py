"""Messages of prediction with a trained model: the server's requests and the parties' responses.

    for each round t, of at most 4096 rows:
      1   server     the rows                                  -> every party
      2   party k    o_k, the outputs of its part of the model -> server, through its privacy stage
      3   server     the joint model of all o_k: logits
      4   server     VFedMH, if asked for: the average of all embeddings -> every party, which predicts for itself

For a forest, o_k is the side of a row at each split (`Decisions`), and there is no step 4.

If the protocol's server learned sums only (`aggregate: blinded`, and FedVS), step 2 is a sum of
common/aggregation/masked_sums.py, over all parties. Labels are not used.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.config.run_options import QuorumConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS, imported_contracts
from colonnade.common.errors import InputError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

ROWS = 4096  # maximum of a round
SPLITS = 2**16  # maximum of a party in a forest
PURPOSE = {"purpose": "prediction"}
"""Predicting members add it to the agreed section, so that none of them joins one that trains."""


@message
class Ask(ServerMessage):
    """Server to party: positions of the requested rows, int64 (rows,), and whether step 4 follows.

    Args:
        own: whether parties predict too, from the average that follows.
        rows: positions among the rows that all members hold alike.
    """

    alike: ClassVar[Alike | None] = Alike(("own", "rows"))

    own: bool
    rows: Annotated[Tensor, TensorSpec("rows", dtype="int64")]


@message
class Output(PartyMessage):
    """Party to server: o_k of these rows, float32 (rows, width).

    Args:
        h: embeddings, or logits of a party with a head of its own.
    """

    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Decisions(PartyMessage):
    """Party to server, for a forest: the rows' sides at all its splits, packed bits, uint8 (rows, bytes)."""

    s: Annotated[Released, TensorSpec("rows", "bytes", dtype="uint8")]


@message
class Averaged(ServerMessage):
    """Server to party: E of these rows, float32 (rows, width)."""

    alike: ClassVar[Alike | None] = Alike(("e",))

    e: Annotated[Tensor, TensorSpec("rows", "width")]


class _PredictionConfig(ProtocolConfig):
    name: Literal["prediction"] = "prediction"


def contract(federation: FederationConfig) -> Contract[Any]:
    """Contract for predictions with a model of this federation; refuses protocols whose models cannot predict."""
    able = [name for name, known in imported_contracts().items() if known.exchange.predicts]
    name = federation.protocol.name
    if name not in able:
        raise InputError(
            f"a model of {name} cannot be asked: it does not say what its joint model is",
            hint=f"there are {', '.join(able)}",
        )
    return Contract(
        title="Prediction: outputs of asked rows",
        source="",
        config=_PredictionConfig,
        messages=(Ask, Decisions) if decides(federation) else (Ask, Output, Averaged, *BLINDED),
        limits=_limits,
        sees={"server": "every party's outputs of the asked rows, or their sums", "party": "which rows are asked"},
    )


def decides(federation: FederationConfig) -> bool:
    """True if the joint model is a forest, whose parties answer with the sides of their splits."""
    return CONTRACTS[federation.protocol.name].exchange.predicts == "decisions"


def width(federation: FederationConfig) -> int:
    """Numbers per row in a party's response: an embedding's, one per class (or score, if the contract has those), or
    one per code.
    """
    contract, width = CONTRACTS[federation.protocol.name], federation.protocol.cut_width
    kind = contract.exchange.predicts
    if kind == "logits":
        return contract.limits_of(federation).get("scores", federation.outputs)
    if kind == "embedding" and width is not None:
        return width
    return contract.limits_of(federation)[kind]


def summed(federation: FederationConfig) -> bool:
    """True if the server learns only the sum of all parties' outputs."""
    protocol = federation.protocol
    return protocol.blinded or CONTRACTS[protocol.name].exchange.sums_alone


def refuse_own(federation: FederationConfig) -> None:
    """Rejects step 4 in protocols whose parties have no model of their own."""
    if not CONTRACTS[federation.protocol.name].exchange.own_predictions or federation.task == "regression":
        able = [name for name, known in imported_contracts().items() if known.exchange.own_predictions]
        raise InputError(
            f"--own: parties of {federation.protocol.name}, {federation.task}, cannot predict by themselves",
            hint=f"{' and '.join(able)}'s can, for classes; leave it out",
        )


def prediction_federation(federation: FederationConfig) -> FederationConfig:
    """The same section for a prediction, which waits for every party: no later round can make up for a missing one."""
    waiting = {"quorum": QuorumConfig(), "participation": 1.0, "absence": "rollback"}
    blinding = federation.blinding.model_copy(update={"recovery": "none"})
    return federation.model_copy(update={**waiting, "blinding": blinding})


def _limits(federation: FederationConfig, _config: ProtocolConfig) -> dict[str, int]:
    if decides(federation):
        return {"rows": ROWS, "bytes": SPLITS // 8}
    numbers = width(federation)
    return {"rows": ROWS, "width": numbers, **blinded_limits(federation, ROWS, numbers)}
