"""Embeddings in two dimensions (t-SNE), so that one can see whether classes lie apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from colonnade.common.data.rows import generator

_MOST = 1000  # rows: more make the page larger and no clearer
_PERPLEXITY = 30.0


def choose_rows(rows: int, seed: int) -> Tensor:
    """At most a thousand of `rows` rows, int64, drawn from the seed."""
    return torch.randperm(rows, generator=generator("maps", seed))[:_MOST]


def flatten_maps(several: Sequence[Tensor], seed: int) -> list[Tensor]:
    """A map of each of these embeddings, several at a time: most of the work is done outside of Python.

    Args:
        several: of a few rows each, float32 (rows, width).
        seed: equal arguments give equal maps.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # comes with scikit-learn

    # The limit on OpenMP's threads is one of the calling thread, that on linear algebra's is the process's.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(len(several), os.cpu_count() or 1)) as pool:
        return list(pool.map(partial(flatten_map, seed=seed), several))


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
    # Its threads wait for each other in every step, which on a busy machine takes three times as long.
    with threadpool_limits(1, "openmp"):
        return torch.from_numpy(tsne.fit_transform(embeddings.numpy()))
