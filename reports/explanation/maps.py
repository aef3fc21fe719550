"""Embeddings in two dimensions (t-SNE), so that one can see whether classes lie apart."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.data.rows import generator

_MOST = 1000  # rows: more make the page larger and no clearer
_PERPLEXITY = 30.0


def choose_rows(rows: int, seed: int) -> Tensor:
    """At most a thousand of `rows` rows, int64, drawn from the seed."""
    return torch.randperm(rows, generator=generator("maps", seed))[:_MOST]


def flatten_map(embeddings: Tensor, seed: int) -> Tensor:
    """A t-SNE map of embeddings, float32 (rows, width) -> (rows, 2).

    Args:
        embeddings: of a few rows; equal ones are fine (a party that sees black pixels only).
        seed: equal arguments give equal maps.
    """
    from sklearn.manifold import TSNE  # noqa: PLC0415  # slow to import
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # comes with scikit-learn

    # Principal components need two directions in which anything varies.
    varied = int((embeddings.std(0) > 0).sum()) >= 2
    perplexity = max(min(_PERPLEXITY, (len(embeddings) - 1) / 3), 1.0)
    tsne = TSNE(perplexity=perplexity, init="pca" if varied else "random", random_state=seed)
    with threadpool_limits(1):  # its threads wait for each other in every step: three times slower on a busy machine
        return torch.from_numpy(tsne.fit_transform(embeddings.numpy()))
