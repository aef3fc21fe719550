"""explain.html and explain.json, put together, and what `explain` prints and `Run.explain` returns.

A configuration with a subset of the parties is VIMADMM's "client summarization" (Section VI-C).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits
from torch import Tensor

from colonnade.client.training.shapes import ShapeSum
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.members import Config
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.common.parsing.dump import config_tree, relocated, yaml_text
from colonnade.common.parsing.file import parse
from colonnade.common.run.activity import activity
from colonnade.common.run.device import torch_threads
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.explanation.findings import Findings, measure, without_columns
from colonnade.reports.explanation.page import Maps, html, shapes_html, short_html
from colonnade.reports.explanation.trained import Trained, open_run
from colonnade.reports.explanation.words import CHANCE, columns_of, headline, numbers, of_heads, sentences
from colonnade.reports.html.page import in_notebook


@dataclass(frozen=True)
class Keep:
    """Parties to keep, from the `top` or `bottom` of the ranking: a number, or a fraction of all."""

    end: Literal["top", "bottom"]
    share: int | float

    @classmethod
    def read(cls, words: str) -> Keep:
        """Parses `top:50%`, `bottom:20%`, `top:3`."""
        found = re.fullmatch(r"(top|bottom):(\d+(?:\.\d+)?%|\d+)", words)
        share = float(found[2][:-1]) / 100 if found and found[2].endswith("%") else int(found[2]) if found else 0
        if found is None or share <= 0 or (isinstance(share, float) and share > 1):
            raise InputError(f"--keep {words}: expected a share of the parties", hint="top:50%, bottom:20%, top:3")
        return cls("top" if found[1] == "top" else "bottom", share)

    def choose(self, ranked: Sequence[str]) -> tuple[str, ...]:
        """Returns the kept parties of a ranking, most important first; a fraction is rounded, to at least one party."""
        count = self.share if isinstance(self.share, int) else max(1, round(self.share * len(ranked)))
        if count > len(ranked):
            raise InputError(f"--keep {self.end}:{count}: there are {len(ranked)} parties", hint="keep fewer of them")
        return tuple(ranked[:count] if self.end == "top" else ranked[-count:])


def write_kept_config(config: Config, base: Path, names: Sequence[str], folder: Path, end: str) -> Path:
    """Writes a file that `up` runs: these parties alone, each with its previous columns.

    Args:
        base: folder that paths in it are relative to.
        end: top or bottom, for the file's name.
    """
    tree = reduced(config, base, names)
    path = folder / f"keep-{end}-{len(names)}.yaml"
    title = f"# {config.federation.id} with {len(names)} of its {len(config.federation.names)} parties\n"
    write_text(path, title + yaml_text(tree))
    return path


def reduced(config: Config, base: Path, names: Sequence[str]) -> dict[str, Any]:
    """The configuration with these parties alone, as plain YAML values with absolute paths."""
    everyone = config.federation.names
    tree = config_tree(config)
    federation, server = tree["federation"], tree["server"]
    federation |= {"id": f"{federation['id']}-{len(names)}", "server": ""}
    federation["parties"] = [name for name in everyone if name in names]
    if isinstance(need := federation["quorum"]["need"], int):
        federation["quorum"]["need"] = min(need, len(names))
    server.pop("identity", None)
    parties = {}
    for name in federation["parties"]:
        split = config.parties[name].data.split.pinned(PartyIndex(everyone.index(name), len(everyone)))
        own = tree["parties"][name]
        own.pop("identity", None)
        own["data"]["split"] = config_tree(split)
        parties[name] = own
    anchored = relocated({**tree, "federation": federation, "server": server, "parties": parties}, base)
    parse(anchored, begun=True)  # ensures that the file can be read
    return anchored


Say = Callable[[str], object]


@dataclass(frozen=True)
class Explained:
    """A written explanation.

    Attributes:
        kept: configurations with fewer parties, each with their names.
        owned: files about each party's columns, if these are parts of the model.
    """

    trained: Trained
    found: Findings
    page: Path
    kept: tuple[tuple[Path, tuple[str, ...]], ...]
    owned: tuple[Path, ...] = ()


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
        (write_kept_config(trained.config, trained.base, names, into.path, wanted.end), tuple(names))
        for wanted, names in chosen
    )
    return Explained(trained, found, into.explained_page, kept, tuple(_write_owned(trained, into, say)))


def _write_owned(trained: Trained, into: RunFolder, say: Say) -> Iterator[Path]:
    """Writes each party's splits, or the contributions of its columns, by name, in its own folder."""
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
        of = {"federation": trained.config.federation.id, "run": trained.folder.number(), "round": trained.round}
        content = {"party": name, **of, **own}
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
    """Columns of a party by gain, and its splits by number, by which the server knows them.

    Args:
        splits: as from `Splits.described`, possibly more than the trees use.
        times: number of nodes that each split divides.
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

    # Principal components need two varying directions.
    varied = int((embeddings.std(0) > 0).sum()) >= 2
    perplexity = max(min(_PERPLEXITY, (len(embeddings) - 1) / 3), 1.0)
    start = "pca" if varied else "random"
    tsne = TSNE(perplexity=perplexity, init=start, max_iter=500, random_state=seed)  # more move a thousand rows little
    # OpenMP's threads wait for each other at every step, which triples the time on a busy machine.
    with threadpool_limits(1, "openmp"):
        return torch.from_numpy(tsne.fit_transform(embeddings.numpy()))


_READING, _MAPS = 1, 3  # steps besides one a party


def explain(run: Path, out: Path | None, sigma: float, keep: tuple[str, ...]) -> None:
    """Writes explain.html and explain.json, and prints the ranking. See `write_explanation`."""
    parties = len((RunFolder(run).read_summary() or {}).get("parties", ()))
    with activity("explaining", _READING + parties + _MAPS, "steps") as doing:

        def say(line: str) -> None:
            doing.step(1 if doing.facts else 0)
            doing.facts = (line.partition(";")[0],)

        explained = write_explanation(run, out, sigma, keep, say)
    _show(explained.trained, explained.found)
    console.point("page", explained.page)
    for path in explained.owned:
        console.point("a party's own columns", path)
    for path, names in explained.kept:
        console.point(f"retrain with {', '.join(names)}", f"colonnade up {path}")


def _show(trained: Trained, found: Findings) -> None:
    console.say(headline(found), "bold")
    columns = columns_of(found)
    table = Grid("rank", "party", *(name for name, _ in columns))
    for rank, party in enumerate(found.ranked, 1):
        table.add_row(str(rank), party.name, *(say(party) for _, say in columns))
    console.show(table)
    heads = [of_heads(found)] if any(party.norm is not None for party in found.parties) else []
    for sentence in (*sentences(trained, found), CHANCE, *heads):
        console.say(sentence)


_NUMBERS = ("norm", "growth", "noised", "missing", "gain")


class Explanation:
    """How much each party of a finished run matters.

    Attributes:
        owned: files about each party's columns, for the party alone.
        said: a sentence on which party is worth its cost.
        measure: name of the metric of `missing` and `lost`, such as `accuracy` or `auc`.
        value: this metric with all parties.
    """

    def __init__(self, made: Explained) -> None:
        found = made.found
        self.page, self.owned = made.page, made.owned
        self.said, self.measure, self.value = headline(found), found.measure, found.clean
        self._short = short_html(made.trained, found)
        self._rows = [
            {
                "party": party.name, "lost": found.clean - party.missing,
                "low": party.interval[0], "high": party.interval[1],
                "told": party.told, "bytes": party.sent, "awaited": party.awaited,
                **{key: getattr(party, key) for key in _NUMBERS},
            }
            for party in found.ranked
        ]  # fmt: skip

    @property
    def table(self) -> pa.Table:
        """A row per party, sorted by the metric's loss without it, largest first.

        `lost` lies between `low` and `high` in 95% of the resamples of the rows, and `told` is true if that is above 0.
        `bytes` left the party in the run, and the others waited `awaited` seconds for it. `norm` is that of the head's
        weights on the party, `growth` its ratio to the norm before the first round; neither is a ranking. `noised` and
        `missing` are the metric with noise on the party's features, and with the mean of its outputs in place of every
        row's. For forests and shape functions `missing` is with the party's answers shuffled; for forests `gain` is its
        splits' share of the total gain. Values that do not apply are null.
        """
        kinds = {"party": pa.string(), "told": pa.bool_(), "bytes": pa.int64()}
        columns = {key: [row[key] for row in self._rows] for key in self._rows[0]}
        return pa.table({key: pa.array(column, kinds.get(key, pa.float64())) for key, column in columns.items()})

    def __repr__(self) -> str:
        return f"<colonnade.Explanation {self.page}: {self.said}>"

    def _repr_html_(self) -> str:
        return in_notebook(self._short)
