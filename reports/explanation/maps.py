"""Embeddings in two dimensions (t-SNE), which show whether classes are separated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from colonnade.common.data.rows import generator

_MOST = 1000  # rows; more enlarge the page without making it clearer
_PERPLEXITY = 30.0


def choose_rows(rows: int, seed: int) -> Tensor:
    """Draws at most a thousand of `rows` rows, int64."""
    return torch.randperm(rows, generator=generator("maps", seed))[:_MOST]


def flatten_maps(several: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Maps each of these embeddings, float32 (rows, width), in parallel threads: most work is outside of Python.

    Equal arguments give equal maps.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # a dependency of scikit-learn

    # OpenMP's thread limit applies to the calling thread, that of linear algebra to the process.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(len(several), os.cpu_count() or 1)) as pool:
        return list(pool.map(partial(flatten_map, seed=seed), several))


def flatten_map(embeddings: Tensor, seed: int) -> Tensor:
    """t-SNE map of embeddings, float32 (rows, width) -> (rows, 2).

    Equal rows are allowed (a party may see only black pixels). Equal arguments give equal maps.
    """
    from sklearn.manifold import TSNE  # noqa: PLC0415  # slow to import
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # a dependency of scikit-learn

    # Principal components need two varying directions.
    varied = int((embeddings.std(0) > 0).sum()) >= 2
    perplexity = max(min(_PERPLEXITY, (len(embeddings) - 1) / 3), 1.0)
    tsne = TSNE(perplexity=perplexity, init="pca" if varied else "random", random_state=seed)
    # OpenMP's threads wait for each other at every step, which triples the time on a busy machine.
    with threadpool_limits(1, "openmp"):
        return torch.from_numpy(tsne.fit_transform(embeddings.numpy()))
