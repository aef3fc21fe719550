"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Read the results of a run"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="the folders of runs", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", help="the page's file", show_default=False)] = None,
    again: Annotated[
        bool, typer.Option("--follow", help="rewrite it every 5 s until the run ends; it need not have begun")
    ] = False,
) -> None:
    """Write a page about a run: curves, timelines, traffic, privacy; about several, a comparison."""
    if again and len(runs) == 1:
        from colonnade.cli.read.follow import follow  # noqa: PLC0415

        return follow(runs[0], out)
    from colonnade.cli.read.report import report as run_it  # noqa: PLC0415
    from colonnade.common.errors import InputError  # noqa: PLC0415

    if again:
        raise InputError("--follow: expected one run", hint="compare several once they have ended")
    return run_it(runs, out)


def explain(
    run: Annotated[Path, typer.Argument(help="the folder of a finished run", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", help="output folder; default: the run's", show_default=False)
    ] = None,
    sigma: Annotated[float, typer.Option(help="noise multiplier, in units of the scaled features")] = 1.0,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="top:50%", help="write a configuration with fewer parties; repeatable"),
    ] = None,
) -> None:
    """Measure how much each party of a finished run matters: a page with pictures."""
    from colonnade.cli.read.explain import explain as run_it  # noqa: PLC0415

    run_it(run, out, sigma, tuple(keep or ()))


def card(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", help="the card's file; default: RUN/card.md", show_default=False)
    ] = None,
) -> None:
    """Write a model card: data, members, quality, protection, and limits."""
    from colonnade.cli.read.card import card as run_it  # noqa: PLC0415

    run_it(run, out)


def ledger(
    folder: Annotated[Path, typer.Argument(help="a party's own folder, RUN/parties/NAME", show_default=False)],
    check: Annotated[bool, typer.Option("--verify", help="verify its chain of hashes")] = False,
    head: Annotated[bool, typer.Option("--head", help="print the newest hash alone, to note elsewhere")] = False,
) -> None:
    """Show what left a party, by its own record: kinds, bytes, rows, protection, epsilon."""
    from colonnade.cli.read.ledger import ledger as run  # noqa: PLC0415

    run(folder, check=check, head=head)


def export(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or with --file of one member", show_default=False)],
    party: Annotated[str, typer.Option(help="name of the party, or server", show_default=False)],
    file: Annotated[
        Path | None, typer.Option(help="the member's configuration, if the run was elsewhere", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="output folder; default: export in the member's", show_default=False)
    ] = None,
) -> None:
    """Write a member's part of a model as safetensors and as a torch.export program."""
    from colonnade.cli.read.export import export as run_it  # noqa: PLC0415

    run_it(run, party, file, out)


def protocols() -> None:
    """List the protocols."""
    from colonnade.cli.read.protocols import list_all  # noqa: PLC0415

    list_all()


def show(name: Annotated[str, typer.Argument(help="a protocol")]) -> None:
    """Print a protocol: its keys, its contract, the server's side and the party's side."""
    from colonnade.cli.read.protocols import show as run  # noqa: PLC0415

    run(name)


def plug_ins() -> None:
    """List the installed plug-ins: protocols, sources, models, losses, metrics and trackers of other packages."""
    from colonnade.cli.read.protocols import list_plug_ins  # noqa: PLC0415

    list_plug_ins()


def register(app: typer.Typer) -> None:
    for command in (report, explain, card, ledger, export, protocols, show, plug_ins):
        app.command(rich_help_panel=PANEL)(command)
