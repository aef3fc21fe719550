"""Labels from responses to a party: signs, largest and smallest entries, and clusters.

A gradient of the cross-entropy at logits is negative at the true class alone (Fu et al. 2022, "Label Inference Attacks
Against Vertical Federated Learning", Section 3). Gradients at embeddings point in a direction of their class, so they
form clusters. Clusters are named by the best assignment (Hungarian), the upper bound usual in this literature.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from torch import Tensor

from colonnade.common.data.rows import generator
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
from colonnade_lab.attacks.run import AttackedRun, accuracy


@dataclass(frozen=True)
class Guess:
    """Result of one way of guessing.

    Args:
        field: KIND.FIELD that it uses.
        epochs: of the messages: the first captured, the last, or all and how they were combined.
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


def largest_class(labels: Tensor) -> float:
    return (torch.bincount(labels).max() / len(labels)).item()


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
        found += [(how, *_held(getattr(values, how)(1), truth), len(rows)) for how in ("argmin", "argmax")]
    if classes == 2:
        found.append(("principal sign", *_named(principal_sign(values), truth, classes), len(rows)))
    for how, prepared in {"clusters": values, "clusters of directions": directions(values)}.items():
        found.append((how, *_named(clusters(prepared, classes), truth, classes), len(rows)))
        by_batch = [_named(clusters(part, classes), truth[place], classes) for place, part in _parts(said, prepared)]
        if len(by_batch) > 1:
            sizes = torch.tensor([float(len(piece.rows)) for piece in said], dtype=torch.float64)
            both = (torch.tensor(by_batch, dtype=torch.float64) * sizes[:, None]).sum(0) / sizes.sum()
            found.append((f"{how}, batch by batch", both[0].item(), both[1].item(), len(rows)))
    return found


def _parts(said: list[Piece], values: Tensor) -> Iterable[tuple[slice, Tensor]]:
    begin = 0
    for piece in said:
        place = slice(begin, begin + len(piece.rows))
        yield place, values[place]
        begin = place.stop


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


def _held(found: Tensor, truth: Tensor) -> tuple[float, float]:
    return accuracy(found, truth), largest_class(truth)
