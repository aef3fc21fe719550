"""The contract of a protocol: its messages, their limits and its properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.messaging.departure import objection
from colonnade.common.messaging.message import Kinds, Message

C = TypeVar("C", bound=ProtocolConfig)


@dataclass(frozen=True)
class Contract(Generic[C]):
    """One protocol, as both its server side and its party side know it.

    Args:
        title: description in one line.
        source: the publication that it follows.
        config: its keys under `federation.protocol`; the field `name` is a Literal.
        messages: every kind allowed; each declares its sender (common/messaging/departure.py).
        limits: the largest value of every dimension name, from the agreed section and the protocol's own config.
        subsampling: True if some parties may skip a round (`federation.participation` below 1).
        sees: role -> data that reaches it.
        response_noise: True if noise on the server's responses can protect the labels
            (`server.privacy.answers`): every value that depends on labels passes `server/privacy/response_noise.py`.
        embeddings: True if parties release only embeddings of the rows of a batch, each of its own row alone,
            so that `federation.privacy.mechanism: adaptive` can protect them.
        predicts: a party's output for a row in prediction: its embedding, or logits if it has a head of its own,
            or the row's released code; "" if the protocol has no prediction.
        gradients: True if a party steps along a gradient at its embeddings, to which it may add its own
            (`federation.adjust`).
        secret_steps: True if a party can take its steps over rows that it draws itself, so that
            `federation.privacy.steps.rate` can be agreed.
        shares_labels: True if parties receive the labels and compute the loss themselves.
        any_loss: True if the server computes the loss, and uses no more of it than its value and gradient by `ctx.loss`
            (`federation.loss`).
        in_step: True if, where the quorum is `wait`, no round ends before every party has sent something of it. A party
            then misses no round, and statements that do not arrive are findings (docs/transcript.md).
        check: refuses an agreed section that this protocol does not support; raises ConfigError.

    Raises:
        TypeError: a message does not declare its sender, or how a party's tensor is protected.
    """

    title: str
    source: str
    config: type[C]
    messages: tuple[type[Message], ...]
    limits: Callable[[FederationConfig, C], Mapping[str, int]]
    sees: Mapping[str, str]
    subsampling: bool = False
    response_noise: bool = False
    embeddings: bool = False
    gradients: bool = False
    secret_steps: bool = False
    predicts: Literal["", "embedding", "logits", "codes"] = ""
    shares_labels: bool = False
    any_loss: bool = False
    in_step: bool = False
    check: Callable[[FederationConfig, C], None] = lambda _federation, _config: None

    def __post_init__(self) -> None:
        for kind in self.messages:
            if why := objection(kind):
                raise TypeError(f"{self.name}: {why}")

    @property
    def name(self) -> str:
        """Name in `federation.protocol.name` and in the names of its files."""
        return str(self.config.model_fields["name"].default)

    @property
    def active(self) -> bool:
        """True if the server holds columns of its own (`server.active`), as the active party, per its config."""
        return self.config.active

    def limits_of(self, federation: FederationConfig) -> Mapping[str, int]:
        """The largest value of every dimension of the messages, in this federation."""
        config: Any = federation.protocol  # of the type `config`: the file was parsed with it
        return self.limits(federation, config)

    @property
    def kinds(self) -> Kinds:
        """The declared messages by name."""
        return {kind.__name__: kind for kind in self.messages}
