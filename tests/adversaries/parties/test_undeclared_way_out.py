"""A protocol does not declare how a tensor leaves a party, or sends one in a message of the server.

Bounds: no cell.
"""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
import torch
from torch import Tensor

from colonnade.client.privacy.egress import Egress, ways_out
from colonnade.common.alignment.messages import ALIGNMENT
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.prediction import Decisions, Output
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import (
    Message,
    PartyMessage,
    ServerMessage,
    TensorSpec,
    message,
    objection,
    tensor_specs,
)
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.protocols.split import Gradient


class Config(ProtocolConfig):
    name: Literal["forgetful"] = "forgetful"


@message
class Undeclared(PartyMessage):
    h: Annotated[Released, TensorSpec("rows", "width")]
    x: Annotated[Tensor, TensorSpec("rows", "width")]


@message
class Nobodys(Message):
    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Servers(ServerMessage):
    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Aside(PartyMessage):
    mean: float


@message
class Both(PartyMessage):
    h: Annotated[Released, TensorSpec("rows", public="it is not")]


REFUSED = [
    (Undeclared, "Undeclared.x does not say how it leaves a party: declare it as Released, as MaskedTensor, or"),
    (Nobodys, "Nobodys does not say who sends it: derive it from PartyMessage or ServerMessage"),
    (Servers, "Servers.h leaves a party, and Servers is the server's: make it a PartyMessage"),
    (Aside, "Aside.mean is a float, which passes no privacy stage: send it as a tensor that is Released"),
    (Both, "Both.h both says that it is public and has a type"),
]


@pytest.mark.parametrize(("kind", "said"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_contract_needs_an_egress_declaration_for_every_message(kind: type[Message], said: str) -> None:
    with pytest.raises(TypeError) as refused:
        Contract("", "", Config, (kind, Gradient), lambda _federation: {}, {})
    assert str(refused.value).startswith(f"forgetful: {said}")


@pytest.mark.parametrize("kind", [kind for kind, _ in REFUSED], ids=lambda kind: kind.__name__)
def test_it_does_not_pass_the_egress_without_a_contract(kind: type[Message]) -> None:
    passed: list[Item] = []
    egress = Egress(passed.append, SERVER, release_clear, Ledger(None))
    with pytest.raises(ContractError, match=f"this side sent {kind.__name__}: expected a message of a party"):
        egress(kind(1, *(egress.release(torch.ones(2, 4)) for _ in list(kind.__annotations__))))
    assert passed == []


def test_a_party_side_that_sends_private_values_in_a_server_message_is_refused() -> None:
    """Both directions share a link; only messages of parties declare how their tensors leave."""
    passed: list[Item] = []
    egress = Egress(passed.append, SERVER, release_clear, Ledger(None))
    with pytest.raises(ContractError, match=r"this side sent Gradient: expected a message of a party"):
        egress(Gradient(1, torch.ones(2, 4)))
    assert passed == []


@pytest.mark.parametrize("name", [*CONTRACTS, "alignment", "prediction"])
def test_every_tensor_of_a_party_declares_how_it_leaves(name: str) -> None:
    kinds = {"alignment": ALIGNMENT, "prediction": (Output, Decisions)}.get(name) or CONTRACTS[name].messages
    parties = [kind for kind in kinds if issubclass(kind, PartyMessage)]
    assert all(not objection(kind) for kind in kinds)
    assert parties or name == "local"
    for kind in parties:
        for field, spec in tensor_specs(kind):
            assert (field in ways_out(kind)) != bool(spec.public)


def test_few_messages_leave_unprotected() -> None:
    """An addition to this list needs a declaration that explains why no private row can be recovered from it."""
    kinds = (
        {kind for contract in CONTRACTS.values() for kind in contract.messages} | set(ALIGNMENT) | {Output, Decisions}
    )
    public = {
        f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}.{field}"
        for kind in kinds
        for field, spec in tensor_specs(kind)
        if spec.public
    }
    assert public == {
        "messages.KeyOffer.key",
        "messages.KeyOffer.certificate",
        "messages.KeyOffer.signature",
        "messages.KeyOffer.told",
        "messages.KeyProof.proofs",
        "messages.SetProof.proofs",
        "messages.SealedShares.shares",
        "messages.SealedShares.pair_keys",
        "messages.OpenedShares.pads",
        "fedvs.Opened.senders",
        "messages.Held.nonce",
        "messages.BinCounts.nonce",
        "messages.ProbeDigest.digest",
        "messages.Pledge.digest",
        "messages.Pledge.certificate",
        "messages.Pledge.signature",
        "messages.Pledge.keys",
        "messages.Stated.certificate",
        "messages.Stated.signature",
        "vfedmh.Prediction.r",
    }
