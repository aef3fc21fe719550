"""`colonnade explain`: the importance of each party of a finished run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from rich.table import Table

from colonnade.common.errors import InputError
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.explanation import keep as keeping
from colonnade.reports.explanation.findings import Findings, measure
from colonnade.reports.explanation.keep import Keep
from colonnade.reports.explanation.maps import choose_rows, flatten_map
from colonnade.reports.explanation.page import Maps, html, numbers, sentences
from colonnade.reports.explanation.trained import Trained, open_run


def explain(run: Path, out: Path | None, sigma: float, keep: tuple[str, ...]) -> None:
    """Writes explain.html and explain.json, and prints the ranking.

    Args:
        run: the folder of a run that `up` has brought to its end.
        out: where to; the run's own folder if left out.
        sigma: standard deviation of the noise, in units of the scaled features.
        keep: for each, a configuration with fewer parties is written: `top:50%`, `bottom:3`.

    Raises:
        InputError: the run is none, has not ended, or cannot be opened; or an option is wrong.
        EnvironmentFault: nothing can be written there.
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"--sigma {sigma:g}: expected a number above 0", hint="1 is one unit of the scaled features")
    keeps = [Keep.read(words) for words in keep]
    torch.set_num_threads(1)  # small products: threads cost more than they save
    trained = open_run(run, _say)
    into = RunFolder((out or run).resolve())
    with console.status("noise and absence"):
        found = measure(trained, sigma, lambda name: _say(f"{name}: noised and missing"))
    chosen = [(wanted, wanted.choose([party.name for party in found.ranked])) for wanted in keeps]
    make_folder(into.path)
    with console.status("maps"):
        maps = _draw_maps(trained, found)
    write_text(into.explained, json.dumps(numbers(trained, found), indent=2) + "\n")
    write_text(into.explained_page, html(trained, found, maps))
    _show(trained, found)
    console.print(f"page: {into.explained_page}", markup=False, soft_wrap=True)
    for wanted, names in chosen:
        path = keeping.write(trained.config, trained.base, names, into.path, wanted.end)
        console.print(f"retrain with {', '.join(names)}: colonnade up {path}", markup=False, soft_wrap=True)


def _draw_maps(trained: Trained, found: Findings) -> Maps:
    """Of the most and the least important party, and of everyone's embeddings side by side."""
    seed = trained.config.federation.seed
    rows = choose_rows(len(found.labels), seed)
    ranked = found.ranked
    wanted = {
        f"{ranked[0].name}, the most important": found.embeddings[ranked[0].name],
        f"{ranked[-1].name}, the least important": found.embeddings[ranked[-1].name],
        "all parties together": torch.cat([found.embeddings[name] for name in trained.names], dim=1),
    }
    points = {}
    for title, embeddings in wanted.items():
        _say(f"map of {title}")
        different = len(torch.unique(embeddings[rows], dim=0))
        said = title if different == len(rows) else f"{title} ({different} different embeddings)"
        points[said] = flatten_map(embeddings[rows], seed)
    return Maps(points, found.labels[rows])


def _show(trained: Trained, found: Findings) -> None:
    table = Table("rank", "party", "head's norm", "over its first", "noised", "without it")
    for rank, party in enumerate(found.ranked, 1):
        norm, growth = ("-" if value is None else f"{value:.4f}" for value in (party.norm, party.growth))
        table.add_row(str(rank), party.name, norm, growth, f"{party.noised:.2%}", f"{party.missing:.2%}")
    console.print(table)
    for sentence in sentences(trained, found):
        console.print(sentence, markup=False)


def _say(line: str) -> None:
    console.print(line, style="dim", markup=False, soft_wrap=True)
