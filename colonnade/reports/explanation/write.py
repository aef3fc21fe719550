"""explain.html and explain.json, put together."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from colonnade.client.training.trees.shapes import ShapeSum
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.run.device import torch_threads
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.explanation import keep as keeping
from colonnade.reports.explanation.findings import Findings, measure, without_columns
from colonnade.reports.explanation.keep import Keep
from colonnade.reports.explanation.page import Maps, html
from colonnade.reports.explanation.shapes_page import shapes_html
from colonnade.reports.explanation.trained import Trained, open_run
from colonnade.reports.explanation.words import numbers

Say = Callable[[str], object]


@dataclass(frozen=True)
class Explained:
    """A written explanation.

    Attributes:
        trained: the opened run.
        found: importance of each party.
        page: path of explain.html.
        kept: configurations with fewer parties, each with their names.
        owned: files about the columns of each party, where they are parts of the model.
    """

    trained: Trained
    found: Findings
    page: Path
    kept: tuple[tuple[Path, tuple[str, ...]], ...]
    owned: tuple[Path, ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        return numbers(self.trained, self.found)


def write_explanation(
    run: Path,
    out: Path | None = None,
    sigma: float = 1.0,
    keep: Sequence[str] = (),
    say: Say = lambda _line: None,
) -> Explained:
    """Writes explain.html and explain.json.

    Args:
        run: folder of a run that has ended, with every party's data on this machine.
        out: default: the run's own folder.
        sigma: standard deviation of the noise, in units of the scaled features.
        keep: for each, writes a configuration with fewer parties: `top:50%`, `bottom:3`.
        say: called with the progress.

    Raises:
        InputError: the run cannot be opened or has not ended; or an option is wrong.
        EnvironmentFault: the output cannot be written.
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"--sigma {sigma:g}: expected a number above 0", hint="1 is one unit of the scaled features")
    keeps = [Keep.read(words) for words in keep]
    with torch_threads(1):  # small products: threads cost more than they save
        trained = open_run(run, say)
        into = RunFolder((out or run).resolve())
        found = measure(trained, sigma, lambda name: say(f"without {name}"))
        chosen = [(wanted, wanted.choose([party.name for party in found.ranked])) for wanted in keeps]
        make_folder(into.path)
        maps = _draw_maps(trained, found, say) if found.embeddings and trained.server.scale is None else None
    write_text(into.explained, json.dumps(numbers(trained, found), indent=2) + "\n")
    write_text(into.explained_page, html(trained, found, maps))
    kept = tuple(
        (keeping.write(trained.config, trained.base, names, into.path, wanted.end), tuple(names))
        for wanted, names in chosen
    )
    return Explained(trained, found, into.explained_page, kept, tuple(_write_owned(trained, into, say)))


def _write_owned(trained: Trained, into: RunFolder, say: Say) -> Iterator[Path]:
    """What a forest asks of each party's columns, or what these add to its scores, by name, in its own folder."""
    forest = trained.forest
    for index, name in enumerate(trained.names):
        if forest is not None:
            own = own_columns(trained.splits[name].described(), *forest.used(index))
            say(f"without each column of {name}")
            without = without_columns(trained, name)
            own["columns"] = [{**one, "missing": without[one["column"]]} for one in own["columns"]]
        else:
            own = trained.locals[name].explained(trained.clients[name])
        if not own:
            continue
        folder = into.party(name).path
        make_folder(folder)
        content = {"party": name, "federation": trained.config.federation.id, "round": trained.round, **own}
        own_folder = RunFolder(folder)
        write_text(own_folder.explained, json.dumps(content, indent=2) + "\n")
        yield own_folder.explained
        if forest is None and isinstance(trained.locals[name], ShapeSum):
            title = f"{trained.config.federation.id}: the shapes of {name}, for its own eyes"
            write_text(own_folder.explained_page, shapes_html(title, own["columns"], own["pairs"]))
            yield own_folder.explained_page


def own_columns(
    splits: Sequence[tuple[str, dict[str, Any], str]], times: NDArray[np.int64], gains: NDArray[np.float64]
) -> dict[str, Any]:
    """Columns of a party by gain, and its splits by number, which is what the server knows of them.

    Args:
        splits: as of `Splits.described`. More than the trees use may have been asked for.
        times: nodes that each split divides.
    """
    columns: dict[str, dict[str, Any]] = {}
    listed, cuts = [], set[str]()
    for number, ((column, side, words), count, gain) in enumerate(zip(splits, times, gains, strict=False)):
        own = columns.setdefault(column, {"column": column, "gain": 0.0, "nodes": 0, "cuts_revealed": 0})
        own["gain"] += float(gain)
        own["nodes"] += int(count)
        cut = json.dumps({**side, "missing": None} if "at_most" in side else side)  # of numbers: where it is, not
        # where missing ones go
        own["cuts_revealed"] += cut not in cuts
        cuts.add(cut)
        listed.append({"number": number, "left": words, "nodes": int(count), "gain": float(gain)})
    return {"columns": sorted(columns.values(), key=lambda one: -one["gain"]), "splits": listed}


def _draw_maps(trained: Trained, found: Findings, say: Say) -> Maps:
    """Maps of the first and the last party by rank, and of all embeddings side by side."""
    seed = trained.config.federation.seed
    rows = choose_rows(len(found.labels), seed)
    ranked = found.ranked
    wanted = {
        f"{ranked[0].name}, rank 1": found.embeddings[ranked[0].name],
        f"{ranked[-1].name}, rank {len(ranked)}": found.embeddings[ranked[-1].name],
        "all parties together": torch.cat([found.embeddings[name] for name in trained.names], dim=1),
    }
    said = []
    for title, embeddings in wanted.items():
        say(f"map of {title}")
        different = len(torch.unique(embeddings[rows], dim=0))
        said.append(title if different == len(rows) else f"{title} ({different} different embeddings)")
    maps = flatten_maps([embeddings[rows] for embeddings in wanted.values()], seed)
    return Maps(dict(zip(said, maps, strict=True)), found.labels[rows])


_MOST = 1000  # rows; more enlarge the page without making it clearer
_PERPLEXITY = 30.0


def choose_rows(rows: int, seed: int) -> Tensor:
    """Draws at most a thousand of `rows` rows, int64."""
    return torch.randperm(rows, generator=generator("maps", seed))[:_MOST]


def flatten_maps(several: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Maps each of these embeddings, float32 (rows, width), in parallel threads: most work is outside of Python.

    Equal arguments give equal maps.
    """
    # OpenMP's thread limit applies to the calling thread, that of linear algebra to the process.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(min(len(several), os.cpu_count() or 1)) as pool:
        return list(pool.map(partial(flatten_map, seed=seed), several))


def flatten_map(embeddings: Tensor, seed: int) -> Tensor:
    """t-SNE map of embeddings, float32 (rows, width) -> (rows, 2).

    Equal rows are allowed (a party may see only black pixels). Equal arguments give equal maps.
    """
    from sklearn.manifold import TSNE  # noqa: PLC0415  # slow to import

    # Principal components need two varying directions.
    varied = int((embeddings.std(0) > 0).sum()) >= 2
    perplexity = max(min(_PERPLEXITY, (len(embeddings) - 1) / 3), 1.0)
    tsne = TSNE(perplexity=perplexity, init="pca" if varied else "random", random_state=seed)
    # OpenMP's threads wait for each other at every step, which triples the time on a busy machine.
    with threadpool_limits(1, "openmp"):
        return torch.from_numpy(tsne.fit_transform(embeddings.numpy()))
