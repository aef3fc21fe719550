"""Labels found by a party that knows the first weights of the server's head.

The gradient of the cross-entropy at a row's scores is softmax minus one-hot: negative at the true class alone. A party
receives its product with the head's derivative at the party's embedding, and solves for it if it knows the head. For
an MLP the derivative also depends on the other parties' embeddings, which the party guesses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from colonnade.common.config.models import LinearHeadConfig, MlpHeadConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.draws import own_draws
from colonnade.common.data.rows import generator
from colonnade.common.messaging.message import tensor_specs
from colonnade.common.models.build import build_head
from colonnade_lab.attacks.labels import largest_class
from colonnade_lab.attacks.run import AttackedRun, accuracy

_PROTOCOLS = {"split", "fedbcd", "split_avg"}  # one head, and gradients at embeddings
_GUESSES = 8  # guesses of the other parties' embeddings per row, for an MLP


@dataclass(frozen=True)
class FirstHeadGuess:
    """Labels named with one head.

    Args:
        first: share of correct labels in the first batch, where the head still has its first weights.
        epoch: share over the first captured epoch, with the same head.
        chance: share of the largest class of the first batch.
    """

    first: float
    epoch: float
    chance: float
    rows: int
    epoch_rows: int


def public_head(run: AttackedRun) -> torch.Generator:
    """Returns the generator of the head's first weights under `public_start`."""
    return own_draws(run.config.federation, SERVER).generator("head")


def name_labels(run: AttackedRun, party: str, start: torch.Generator | None = None) -> FirstHeadGuess | None:
    """Names the labels of the first epoch from the party's capture and the first head.

    Args:
        start: generator of the head's weights, as the party believes; None for the public one.

    Returns:
        None if the protocol sends no gradient of a head that only the server has, if none of the first batch was
            captured, if the head is neither linear nor an MLP, or if it is an MLP and the party's capture has no
            embedding of its own in the clear.
    """
    protocol, federation = run.config.federation.protocol, run.config.federation
    how = getattr(protocol, "combine", "concatenate")
    assert run.config.server is not None  # checked by open_run
    head_config = run.config.server.head
    if run.protocol not in _PROTOCOLS or how == "max" or protocol.asynchronous:
        return None
    if not isinstance(head_config, LinearHeadConfig | MlpHeadConfig):
        return None
    width, parties = CONTRACTS[run.protocol].limits_of(federation)["width"], len(federation.names)
    averaged = how == "average"
    inputs = width if averaged else width * parties
    head = build_head(head_config, inputs, federation.outputs, start or public_head(run), run.base).eval()
    place = slice(0, width) if averaged else slice(*(width * (federation.names.index(party) + k) for k in (0, 1)))
    own: dict[int, Tensor] = {}
    named: dict[int, tuple[Tensor, Tensor]] = {}
    for one in run.training(party):
        message = one.message
        turn = getattr(message, "turn", message.round)
        if turn < 1 or math.ceil(run.schedule.epoch(turn)) > 1:
            continue
        if one.way == "out" and any(s.dims == ("rows", "width") for _, s in tensor_specs(type(message))):
            own.setdefault(message.round, getattr(message, "h", torch.empty(0)))
        if one.way == "in" and hasattr(message, "dh") and message.round not in named:
            batch, linear = run.schedule.batch(turn), isinstance(head_config, LinearHeadConfig)
            h = own.get(message.round, torch.empty(0))
            if not linear and len(h) != len(batch):
                return None
            named[message.round] = batch, _named(head, message.dh, h, place, inputs, linear=linear)
    if 1 not in named:
        return None
    (rows, first), truth = named[1], run.labels
    every, found = (torch.cat(parts) for parts in zip(*named.values(), strict=True))
    return FirstHeadGuess(
        accuracy(first, truth[rows]), accuracy(found, truth[every]), largest_class(truth[rows]), len(rows), len(every)
    )


def _named(head: nn.Module, dh: Tensor, h: Tensor, place: slice, inputs: int, *, linear: bool) -> Tensor:
    """Returns the classes of rows, int64 (n,): the least entry of the gradient at the scores, or the best-fitting
    class.

    Args:
        dh: gradient of each row, (n, width), up to a positive factor.
        h: the party's embeddings, (n, width); not used if the head is linear.
    """
    derivative = vmap(jacrev(lambda row: head(row[None])[0]))
    if linear:
        return _scores(derivative(torch.zeros(1, inputs))[:, :, place], dh).argmin(1)
    draws, width = generator("other embeddings", 0), h.shape[1]
    fit = torch.zeros(len(h), len(head(torch.zeros(1, inputs))[0]), dtype=torch.float64)
    for _ in range(_GUESSES):  # assumes that other parties' embeddings are like its own
        tried = torch.cat([h[torch.randperm(len(h), generator=draws)] for _ in range(inputs // width)], dim=1)
        tried[:, place] = h
        with torch.no_grad():
            likely = torch.softmax(head(tried), 1)
        wrong = likely[:, None] - torch.eye(likely.shape[1])  # (n, classes: the true one, classes)
        fit += torch.cosine_similarity(wrong @ derivative(tried)[:, :, place], dh[:, None], dim=2)
    return fit.argmax(1)


def _scores(slope: Tensor, dh: Tensor) -> Tensor:
    """Solves for the gradient at the scores by least squares, float64 (n, classes), with rows that sum to 0.

    Args:
        slope: derivative of the scores by the embedding, (n or 1, classes, width).
    """
    centred = slope.double() - slope.double().mean(1, keepdim=True)
    solved: Tensor = torch.linalg.pinv(centred.mT, rtol=1e-9) @ dh.double()[..., None]
    return solved[..., 0]
