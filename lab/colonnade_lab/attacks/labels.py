"""Labels from responses to a party: signs, largest and smallest entries, and clusters.

A gradient of the cross-entropy at logits is negative at the true class alone (Fu et al. 2022, "Label Inference Attacks
Against Vertical Federated Learning", Section 3). Gradients at embeddings point in a direction of their class, so they
form clusters. Clusters are named by the best assignment (Hungarian), the upper bound usual in this literature.

A party that knows the first weights of the server's head does better. It receives the gradient at a row's scores times
the head's derivative at its embedding, and solves for it. For an MLP the derivative also depends on the other parties'
embeddings, which the party guesses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.func import jacrev, vmap

from colonnade.common.config.models import LinearHeadConfig, MlpHeadConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.draws import own_draws
from colonnade.common.data.rows import generator
from colonnade.common.messaging.message import tensor_specs
from colonnade.common.models.build import build_head
from colonnade_lab.attacks.rows import (
    FieldRecords,
    Piece,
    Transcript,
    estimates,
    gathered,
    pieces,
    principal,
    window_length,
)
from colonnade_lab.attacks.run import AttackedRun, accuracy, largest_class


@dataclass(frozen=True)
class Guess:
    """Result of one way of guessing.

    Args:
        field: KIND.FIELD of the messages.
        epochs: the first captured, the last, or all and how they were combined.
        chance: accuracy of the same method with shuffled labels, or the largest class, if that is more.
    """

    field: str
    epochs: str
    method: str
    accuracy: float
    chance: float
    rows: int


def infer(run: AttackedRun, party: str, epochs: int = 0) -> list[Guess]:
    """Every guess of a curious party from its own capture, best first. Empty if no message has a line per row.

    With `epochs` 0 all captured epochs are combined; with 1 the first and the last are used alone.
    """
    classes, length = run.config.federation.outputs, window_length(run)
    about = pieces(run.schedule, run.training(party), estimates(run, party))
    fields = gathered(about, "in", FieldRecords, lambda: Transcript(length), lambda: Transcript(length, directions))
    found: list[Guess] = []
    for name, records in fields[0].items():
        for said in {id(said[-1]): said for said in (records.first, records.last)}.values():
            found += [Guess(name, str(said[-1].epoch), *way) for way in guesses(said, run.labels, classes)]
        if epochs == 0 and said[-1].values.is_floating_point():
            for how, one in combined(fields[1][name], fields[2][name], classes).items():
                found += [Guess(name, how, *way) for way in guesses([one], run.labels, classes)]
    return sorted(found, key=lambda guess: guess.chance - guess.accuracy)


def combined(values: Transcript, turned: Transcript, classes: int) -> dict[str, Piece]:
    """One line per row from all epochs: means, and principal components of windows, twice as many as classes.

    Components mix the entries of a line, so an entry's place no longer says anything about classes.
    """
    parts = {"mean": values.mean(), "mean direction": turned.mean()}
    for how, one in {"components": values, "components of directions": turned}.items():
        rows, windows = one.windows()
        parts[how] = rows, principal(windows, 2 * classes)
    return {f"all, {how}": Piece("", "in", 0, "train", rows, said) for how, (rows, said) in parts.items()}


def guesses(said: list[Piece], labels: Tensor, classes: int) -> list[tuple[str, float, float, int]]:
    """(method, accuracy, chance, rows) of every method that fits the pieces of one field."""
    rows = torch.cat([piece.rows for piece in said])
    values, truth = torch.cat([piece.values for piece in said]), labels[rows]
    if not values.is_floating_point():
        plain = values.dim() == 1
        return [("sent as they are", accuracy(values, truth), largest_class(truth), len(rows))] if plain else []
    values = values.view(len(values), -1).float()
    found: list[tuple[str, float, float, int]] = []
    if values.shape[1] == classes:
        chance = largest_class(truth)
        found += [(how, accuracy(getattr(values, how)(1), truth), chance, len(rows)) for how in ("argmin", "argmax")]
    if classes == 2:
        found.append(("principal sign", *_named(principal_sign(values), truth, classes), len(rows)))
    for how, prepared in {"clusters": values, "clusters of directions": directions(values)}.items():
        found.append((how, *_named(clusters(prepared, classes), truth, classes), len(rows)))
        lengths = [len(piece.rows) for piece in said]
        parts = zip(torch.split(truth, lengths), torch.split(prepared, lengths), strict=True)
        by_batch = [_named(clusters(part, classes), names, classes) for names, part in parts]
        if len(by_batch) > 1:
            sizes = torch.tensor(lengths, dtype=torch.float64)
            both = (torch.tensor(by_batch, dtype=torch.float64) * sizes[:, None]).sum(0) / sizes.sum()
            found.append((f"{how}, batch by batch", both[0].item(), both[1].item(), len(rows)))
    return found


def clusters(values: Tensor, k: int) -> Tensor:
    """Runs k-means on float32 (rows, width) and returns cluster numbers, int64 (rows,)."""
    k = min(k, len(torch.unique(values, dim=0)))
    return torch.as_tensor(KMeans(k, n_init=3, random_state=0).fit_predict(values.numpy()), dtype=torch.int64)


def directions(values: Tensor) -> Tensor:
    """Scales vectors to length 1; zeros stay zero."""
    length: Tensor = torch.linalg.vector_norm(values, dim=1, keepdim=True)
    return values / length.clamp(min=1e-30)


def principal_sign(values: Tensor) -> Tensor:
    """Returns each row's side of the mean along the leading principal direction: 0 or 1, int64 (rows,)."""
    centred = (values - values.mean(0)).double()
    leading: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
    return (centred @ leading > 0).long()


def best_names(groups: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Renames groups to distinct classes so that most rows are right; int64 (rows,)."""
    counts = torch.bincount(groups * classes + truth, minlength=classes * classes).view(classes, classes)
    return torch.as_tensor(linear_sum_assignment(counts.numpy(), maximize=True)[1])[groups]


def _named(groups: Tensor, truth: Tensor, classes: int) -> tuple[float, float]:
    """Returns accuracy and chance of groups under their best names; for chance, names are fitted to shuffled labels."""
    shuffled = truth[torch.randperm(len(truth), generator=generator("shuffled labels"))]
    found, lucky = (accuracy(best_names(groups, names, classes), names) for names in (truth, shuffled))
    return found, max(lucky, largest_class(truth))


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
    start = start or own_draws(federation, SERVER).generator("head")
    head = build_head(head_config, inputs, federation.outputs, start, run.base).eval()
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
            named[message.round] = batch, _guessed(head, message.dh, h, place, inputs, linear=linear)
    if 1 not in named:
        return None
    (rows, first), truth = named[1], run.labels
    every, found = (torch.cat(parts) for parts in zip(*named.values(), strict=True))
    return FirstHeadGuess(
        accuracy(first, truth[rows]), accuracy(found, truth[every]), largest_class(truth[rows]), len(rows), len(every)
    )


def _guessed(head: nn.Module, dh: Tensor, h: Tensor, place: slice, inputs: int, *, linear: bool) -> Tensor:
    """Returns the classes of rows by their gradients `dh`, up to a positive factor, and embeddings `h`, (n, width):
    the least entry of the gradient at the scores, or for a head that is not linear the best-fitting class.
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

    `slope` is the derivative of the scores by the embedding, (n or 1, classes, width).
    """
    centred = slope.double() - slope.double().mean(1, keepdim=True)
    solved: Tensor = torch.linalg.pinv(centred.mT, rtol=1e-9) @ dh.double()[..., None]
    return solved[..., 0]
