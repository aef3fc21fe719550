"""What a protocol agrees on before anyone runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.messaging.departure import objection
from colonnade.common.messaging.message import Kinds, Message


@dataclass(frozen=True)
class Contract:
    """One protocol, as both halves know it.

    Args:
        title: what it is, in one line.
        source: the publication that it follows.
        config: its keys under `federation.protocol`; the field `name` is a Literal.
        messages: every kind that may travel, and no other does; each says who sends it (common/messaging/departure.py).
        limits: the largest value of every dimension name, from the agreed config.
        subsampling: whether some parties may sit a round out (`federation.participation` below 1).
        sees: who learns what: role -> what reaches it.
        answers_protected: whether noise on what goes back to the parties can protect the labels
            (`server.privacy.answers`): everything that depends on labels passes `server/privacy/response_noise.py`.
        embeddings: whether all that parties release is embeddings of the rows of a batch, each of its own row alone,
            so that `federation.privacy.mechanism: adaptive` can protect them.
        predicts: what a party says of a row when a model of this protocol is asked: its embedding, or logits if it
            has a head of its own; "" where models cannot be asked.
        gradients: whether a party takes its steps along a gradient at its embeddings, to which it may add its own
            (`federation.adjust`).
        shares_labels: whether parties are sent the labels and compute the loss themselves.
        check: refuses an agreed section that this protocol cannot run with; raises ConfigError.

    Raises:
        TypeError: a message does not say who sends it, or how a tensor of a party leaves.
    """

    title: str
    source: str
    config: type[ProtocolConfig]
    messages: tuple[type[Message], ...]
    limits: Callable[[FederationConfig], Mapping[str, int]]
    sees: Mapping[str, str]
    subsampling: bool = False
    response_noise: bool = False
    embeddings: bool = False
    gradients: bool = False
    predicts: Literal["", "embedding", "logits"] = ""
    shares_labels: bool = False
    check: Callable[[FederationConfig], None] = lambda _federation: None

    def __post_init__(self) -> None:
        for kind in self.messages:
            if why := objection(kind):
                raise TypeError(f"{self.name}: {why}")

    @property
    def name(self) -> str:
        """As in `federation.protocol.name` and in the names of its files."""
        return str(self.config.model_fields["name"].default)

    @property
    def active(self) -> bool:
        """Whether the server holds columns of its own (`server.active`), as the active party: its config says so."""
        return self.config.active

    @property
    def kinds(self) -> Kinds:
        """The declared messages by name."""
        return {kind.__name__: kind for kind in self.messages}
