"""What travels in a protocol's training, from which follows what can be protected, predicted and permitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
    """The kinds of what parties send and are returned. A new kind is a word of `Sent` and its properties below."""

    sends: Sent = "other"
    returns: Returned = "other"

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
        """True if the server computes the loss, and uses no more of it than its value and gradient by `ctx.loss`."""
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
    """What a contract of before this class says by single keywords. It goes with version 0.4."""

    embeddings: bool = False
    gradients: bool = False
    shares_labels: bool = False
    any_loss: bool = False
    predicts: Output = ""
