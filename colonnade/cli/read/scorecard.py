"""`colonnade scorecard`: how well a two-class run's scores separate people, and the effect of a cut-off. `colonnade
bins`: a party's bins of a scorecard, from its own folder.
"""

from __future__ import annotations

from pathlib import Path

from colonnade.cli.read.export import find_part, open_part, record_of
from colonnade.client.training.card import Card
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import load
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.reports.console.outputs import output_file, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.scorecard.bins import bins_page, show_bins
from colonnade.reports.scorecard.findings import find
from colonnade.reports.scorecard.page import page, show


def scorecard(
    run: Path, cut_off: float | None, groups: str, scores: Path | None, labels: str, out: Path | None
) -> None:
    found = find(run, cut_off, groups, scores, labels)
    into = output_file(out, RunFolder(run).scorecard)
    write_text(into, page(found))
    show(console, found)
    console.point("page", into)


def bins(folder: Path, file: Path | None, out: Path | None) -> None:
    run, party = (folder, _only(file)) if file is not None else (folder.parent.parent, folder.resolve().name)
    if file is None and folder.resolve().parent.name != "parties":
        raise InputError(
            f"{folder} is no folder of a party in a run: expected RUN/parties/NAME",
            hint="of a party by itself, name its file too: --file party1.yaml",
        )
    place = find_part(run, party, file)
    if not place.config.federation.protocol.cards:
        name = place.config.federation.protocol.name
        raise InputError(f"{folder}: in {name} a party has no bins with points", hint="scorecard has; see export")
    opened = open_part(place, party)
    assert isinstance(opened.local, Card)
    card = {**record_of(place.config, party, opened), **opened.local.record()}
    into = output_file(out, PartyFolder(folder).bins)
    write_text(into, bins_page(card))
    show_bins(console, card)
    console.point("page", into)


def _only(file: Path) -> str:
    """The party of a party's own file."""
    names = list(load(file, begun=True).parties)
    if len(names) != 1:
        raise InputError(f"{file} has sections for {', '.join(names) or 'no party'}", hint="name a party's own file")
    return names[0]
