"""The contract of a protocol: its messages, their limits and its properties.

An `Exchange` names what travels in training; from that follows what can be protected, predicted and permitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar, get_args

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.errors import ConfigError, nearest
from colonnade.common.messaging.message import Kinds, Message, objection, tensor_specs

Sent = Literal["embeddings", "pairs", "logits", "coded", "columns", "codes", "histograms", "nothing", "other"]
"""What a party sends of the rows of a batch, each row's part a function of that row alone but for `coded`, `histograms`
and `other`.

embeddings   one embedding a row; with blinded sums the server learns their sum alone
pairs        two embeddings a row, at parameters close together
logits       logits of a head of its own
coded        shares of embeddings in a code, of which the server decodes the sum
columns      raw columns
codes        a set of codes a row, drawn once
histograms   sums of the server's numbers over the bins of its columns, and on which side of a split each row is
"""

Returned = Literal["gradients", "duals", "losses", "labels", "average", "questions", "sums", "nothing", "other"]
"""What a party learns of the labels in return.

gradients    of `ctx.loss`, of which the server uses the value and the gradient and nothing else, at what it sent
duals        dual variables and residuals
losses       losses, or differences of losses
labels       labels, or noisy ones: it computes the loss itself
average      the average of all embeddings, and then a gradient as above at its own prediction from that
questions    splits of its columns, chosen by the labels
sums         sums of gradients over the bins of its own columns
"""

Output = Literal["", "embedding", "logits", "codes", "decisions"]

_OUTPUTS: Mapping[Sent, Output] = {
    "embeddings": "embedding",
    "pairs": "embedding",
    "coded": "embedding",
    "logits": "logits",
    "codes": "codes",
    "histograms": "decisions",
}


@dataclass(frozen=True)
class Exchange:
    """What parties send and receive back, by kind. A new kind is a word of `Sent` and its properties below.

    Raises:
        ValueError: an unknown word.
    """

    sends: Sent = "other"
    returns: Returned = "other"

    def __post_init__(self) -> None:
        for key, word, known in (("sends", self.sends, get_args(Sent)), ("returns", self.returns, get_args(Returned))):
            if word not in known:
                hint = nearest(str(word), known)
                raise ValueError(f"Exchange({key}={word!r}): unknown{hint}; there are {', '.join(known)}")

    @property
    def embeddings(self) -> bool:
        """True if parties release only embeddings, each of its own row alone, so that rows can be protected."""
        return self.sends == "embeddings"

    @property
    def gradients(self) -> bool:
        """True if a party steps along a gradient at its embeddings, to which it may add its own."""
        return self.embeddings and self.returns in ("gradients", "duals", "losses", "labels")

    @property
    def shares_labels(self) -> bool:
        """True if parties receive the labels and compute the loss themselves."""
        return self.returns == "labels"

    @property
    def labels_first(self) -> bool:
        """True if parties need all labels before there is a model."""
        return self.shares_labels and self.sends == "codes"

    @property
    def any_loss(self) -> bool:
        """True if the server computes the loss and uses only its value and gradient, by `ctx.loss`."""
        return self.returns in ("gradients", "average", "nothing")

    @property
    def sums_alone(self) -> bool:
        """True if the server learns sums over the parties whatever the configuration says."""
        return self.sends == "coded"

    @property
    def own_predictions(self) -> bool:
        """True if a party can predict by itself from the average of all embeddings."""
        return self.returns == "average"

    @property
    def one_number(self) -> bool:
        """True if a party learns from one number a batch."""
        return self.sends == "pairs" and self.returns == "losses"

    @property
    def predicts(self) -> Output:
        """A party's output for a row in prediction: "" if the protocol has no prediction."""
        return _OUTPUTS.get(self.sends, "")


@dataclass(frozen=True)
class FormerExchange(Exchange):
    """A contract's former keywords for its exchange, until version 0.4."""

    embeddings: bool = False
    gradients: bool = False
    shares_labels: bool = False
    any_loss: bool = False
    predicts: Output = ""


C = TypeVar("C", bound=ProtocolConfig)

_FORMER = frozenset(FormerExchange.__annotations__)


def _warn(keywords: str, stacklevel: int) -> None:
    said = f"{keywords}: a Contract says this by exchange=Exchange(sends, returns) (docs/protocol_parts.md)"
    warnings.warn(said, DeprecationWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True, init=False)
class Contract(Generic[C]):
    """One protocol, as both its server side and its party side know it.

    Args:
        title: description in one line.
        source: the publication that it follows.
        config: its keys under `federation.protocol`; the field `name` is a Literal.
        messages: every kind allowed; each declares its sender (common/messaging/message.py).
        limits: the largest value of every dimension name, from the agreed section and the protocol's own config.
        sees: role -> data that reaches it.
        exchange: what parties send and receive back.
        subsampling: True if some parties may skip a round (`federation.participation` below 1).
        response_noise: True if noise on the server's responses can protect the labels (`server.privacy.answers`): every
            value that depends on labels passes `server/privacy.py`.
        secret_steps: True if a party can take its steps over rows that it draws itself, so that
            `federation.privacy.steps.rate` can be agreed.
        in_step: True if, with the quorum `wait`, no round ends before every party has sent a message of it. A party
            then misses no round, and missing statements are findings (docs/transcript.md).
        vectors: most vectors of a round that a party sums over its bins; None without such sums.
        check: refuses an agreed section that this protocol does not support; raises ConfigError.
        former: keywords of version 0.2, in place of `exchange`.

    Raises TypeError if a message does not declare its sender, or how a party's tensor is protected.
    """

    title: str
    source: str
    config: type[C]
    messages: tuple[type[Message], ...]
    limits: Callable[[FederationConfig, C], Mapping[str, int]]
    sees: Mapping[str, str]
    exchange: Exchange
    subsampling: bool
    response_noise: bool
    secret_steps: bool
    in_step: bool
    vectors: Callable[[FederationConfig, C], int] | None
    check: Callable[[FederationConfig, C], None]

    def __init__(
        self,
        title: str,
        source: str,
        config: type[C],
        messages: tuple[type[Message], ...],
        limits: Callable[[FederationConfig, C], Mapping[str, int]],
        sees: Mapping[str, str],
        *,
        exchange: Exchange | None = None,
        subsampling: bool = False,
        response_noise: bool = False,
        secret_steps: bool = False,
        in_step: bool = False,
        vectors: Callable[[FederationConfig, C], int] | None = None,
        check: Callable[[FederationConfig, C], None] = lambda _federation, _config: None,
        **former: Any,
    ) -> None:
        if former:
            _warn(", ".join(former), stacklevel=3)
            exchange = FormerExchange(**former)  # TypeError: unknown keyword
        values = locals()
        for each in fields(self):
            object.__setattr__(self, each.name, values[each.name])
        object.__setattr__(self, "exchange", exchange or Exchange())
        for kind in messages:
            if why := objection(kind):
                raise TypeError(f"{self.name}: {why}")

    def __getattr__(self, name: str) -> Any:
        if name not in _FORMER:
            raise AttributeError(name)
        _warn(name, stacklevel=3)
        return getattr(self.exchange, name)

    @property
    def name(self) -> str:
        """Name in `federation.protocol.name` and in the names of its files."""
        return str(self.config.model_fields["name"].default)

    @property
    def active(self) -> bool:
        """True if the server holds columns of its own (`server.active`), as the active party, per its config."""
        return self.config.active

    def limits_of(self, federation: FederationConfig) -> Mapping[str, int]:
        """The largest value of every dimension of the messages, in this federation.

        Raises ConfigError if a message has a dimension that `limits` does not give.
        """
        config: Any = federation.protocol  # of the type `config`: the file was parsed with it
        limits = self.limits(federation, config)
        for kind in self.messages:
            for field, spec in tensor_specs(kind):
                for dim in spec.dims:
                    if dim not in limits:
                        raise ConfigError(
                            f"the protocol {self.name}: {kind.__name__}.{field} has a dimension {dim!r}, and `limits` "
                            f"of its contract no such key{nearest(dim, limits)}",
                            hint=f"`limits` gives {', '.join(limits) or 'nothing'}: add the largest value of {dim!r}, "
                            "or correct the name in TensorSpec",
                        )
        return limits

    def width_of(self, federation: FederationConfig) -> int | None:
        """Width of a member's bottom model: the protocol's `embedding` or the limit `width`.

        Without either, the number of classes or targets if parties train what they send as logits; None if that is
        open.
        """
        protocol = federation.protocol
        if (width := protocol.cut_width or self.limits_of(federation).get("width")) is not None:
            return width
        logits = self.exchange.sends == "logits" and not protocol.typed and "party" in protocol.optimisers
        return federation.outputs if logits else None

    @property
    def kinds(self) -> Kinds:
        """The declared messages by name."""
        return {kind.__name__: kind for kind in self.messages}
