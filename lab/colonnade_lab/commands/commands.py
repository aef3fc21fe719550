"""The laboratory's commands, which it adds to the command line by an entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import processors
from colonnade.common.errors import InputError

PANEL = "Laboratory"


def reproduce(
    which: Annotated[
        str, typer.Argument(metavar="[PAPER[/TABLE]]", help="with --frontier a set; default: all", show_default=False)
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="the papers' main claims on small data, in minutes")] = False,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="all protocols: accuracy against bytes, rounds and simulated time")
    ] = False,
    seeds: Annotated[int, typer.Option(help="seeds of every run", min=1)] = 3,
    only_list: Annotated[
        bool, typer.Option("--list", help="run nothing; print the stored results and write the pages")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="folder of results")] = Path("results"),
    processes: Annotated[int, typer.Option(help="concurrent runs; 0: one a processor", min=0)] = 0,
) -> None:
    """Run the papers' experiments and print their values next to ours; finished runs are kept."""
    from colonnade_lab.papers.results import RunOptions  # noqa: PLC0415

    options = RunOptions(which, seeds, out, processes or processors(), only_list=only_list, quick=quick)
    if not frontier:
        from colonnade_lab.commands.reproduce import reproduce as run  # noqa: PLC0415

        run(options)
    elif quick:
        raise InputError("--quick with --frontier, which has no quick look", hint="leave one out")
    else:
        from colonnade_lab.commands.frontier import show_frontier  # noqa: PLC0415

        show_frontier(options)


def attack(
    run: Annotated[
        Path,
        typer.Argument(
            help="folder of a run; labels, scores, batches, columns and inversion need captures", show_default=False
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            help="the attack: see docs/attacks.md; another word lists all",
            show_default=False,
        ),
    ],
    party: Annotated[str, typer.Option(help="the party whose messages are attacked; default: all that captured")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="output folder; default: RUN/attacks", show_default=False)
    ] = None,
    known: Annotated[
        float,
        typer.Option(help="inversion, columns, whitebox, features, hijack: share of rows whose features are known"),
    ] = 0.2,
    epochs: Annotated[
        int, typer.Option(help="labels, inversion: newest captured epochs that are used; 0: all, combined", min=0)
    ] = 0,
    seed: Annotated[int, typer.Option(help="seed of the attacker's draws")] = 0,
    shadows: Annotated[int, typer.Option(help="membership, lira: number of simulated federations")] = 4,
    canaries: Annotated[int, typer.Option(help="audit: number of canaries of every mechanism", min=100)] = 20_000,
    labels: Annotated[
        int, typer.Option(help="completions, scores, backdoor: number of labels that the party knows")
    ] = 40,
    attacker: Annotated[str, typer.Option(help="columns: one of its five attackers; default: all")] = "all",
    starts: Annotated[int, typer.Option(help="columns: number of first weights that are tried", min=1)] = 256,
    rounds: Annotated[int, typer.Option(help="columns: first rounds that the server has seen; 0: all", min=0)] = 0,
    active: Annotated[
        bool, typer.Option("--active", help="columns, with boosted trees: a server that chooses its vectors")
    ] = False,
) -> None:
    """Attack a captured run as curious members could, and report what they learn."""
    from colonnade_lab.commands.attack import Options  # noqa: PLC0415
    from colonnade_lab.commands.attack import attack as run_it  # noqa: PLC0415

    chosen = (party, known, epochs, seed, shadows, canaries, labels, attacker, starts, rounds, active)
    run_it(run, kind, out, Options(*chosen))


def compare(names: tuple[str, ...], seeds: int, out: Path, jobs: int, only_list: bool) -> None:
    """`colonnade compare` without `--on`. No `names` means every protocol; with `only_list` nothing runs."""
    from colonnade_lab.commands.compare import compare as run  # noqa: PLC0415
    from colonnade_lab.papers.results import RunOptions  # noqa: PLC0415

    run(names, RunOptions("", seeds, out, jobs, only_list))


def register(app: typer.Typer) -> None:
    for command in (reproduce, attack):
        app.command(rich_help_panel=PANEL)(command)
