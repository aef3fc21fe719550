"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import Sets

PANEL = "Research"


def compare(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL...]", help="default: all", show_default=False)
    ] = None,
    on: Annotated[
        Path | None,
        typer.Option("--on", metavar="FILE", help="a configuration with data and labels: compare on these"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="seeds of every run; default: 3, with --on 1", min=1, show_default=False)
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="run nothing; print the stored results and write the pages")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="folder of results and pages; default: results, with --on runs/ID-compare", show_default=False
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", "--jobs", help="concurrent runs; 0: one a processor", min=0)
    ] = 0,
    trials: Annotated[
        int | None,
        typer.Option(help="with --on: trials of each search; 0: defaults alone; default: 10", show_default=False),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="with --on: the most training and validation rows, and the most test rows")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="with --on: such as auc; default: one that fits the labels", show_default=False)
    ] = "",
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="with --on: take models and heads of the file")
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="with --on: privacy of vfl_afe, which needs one; default: 8", show_default=False),
    ] = None,
    sets: Sets = None,
) -> None:
    """Run all protocols on one task and write a page: on digits, or with --on on your own data, with a search."""
    from colonnade.cli.research.reproduce import processors  # noqa: PLC0415

    jobs = processes or processors()
    if on is not None:
        from colonnade.cli.research.compare_on import compare_on  # noqa: PLC0415

        compare_on(
            on, tuple(names or ()), only_list=only_list, jobs=jobs, seeds=seeds, out=out, sets=tuple(sets or ()),
            trials=trials, rows=rows, metric=metric, keep_models=keep_models, epsilon=epsilon,
        )  # fmt: skip
        return
    from colonnade.cli.research.compare import ComparisonOptions, refuse_without_file  # noqa: PLC0415
    from colonnade.cli.research.compare import compare as run  # noqa: PLC0415

    refuse_without_file(trials=trials, rows=rows, metric=metric, keep_models=keep_models, epsilon=epsilon, set=sets)
    run(ComparisonOptions(tuple(names or ()), seeds or 3, out or Path("results"), jobs, only_list))


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
    wire: Annotated[bool, typer.Option("--wire", help="run as processes, not on the virtual clock")] = False,
) -> None:
    """Run the papers' experiments and print their values next to ours; finished runs are kept."""
    from colonnade.cli.research.reproduce import ReproductionOptions, processors  # noqa: PLC0415
    from colonnade.cli.research.reproduce import reproduce as run  # noqa: PLC0415

    if frontier:
        from colonnade.cli.research.frontier import FrontierOptions, refuse_mixed, show_frontier  # noqa: PLC0415

        refuse_mixed(quick=quick, wire=wire)
        show_frontier(FrontierOptions(which, seeds, out, processes or processors(), only_list))
        return
    run(ReproductionOptions(which, seeds, out, processes or processors(), quick=quick, only_list=only_list, wire=wire))


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
) -> None:
    """Attack a captured run as curious members could, and report what they learn."""
    from colonnade.cli.research.attack import attack as run_it  # noqa: PLC0415
    from colonnade.cli.research.attack_options import Options  # noqa: PLC0415

    run_it(run, kind, out, Options(party, known, epochs, seed, shadows, canaries, labels, attacker, starts, rounds))


def protocols() -> None:
    """List the protocols."""
    from colonnade.cli.research.protocols import list_all  # noqa: PLC0415

    list_all()


def show(name: Annotated[str, typer.Argument(help="a protocol")]) -> None:
    """Print a protocol: its keys, its contract, the server's side and the party's side."""
    from colonnade.cli.research.protocols import show as run  # noqa: PLC0415

    run(name)


def plug_ins() -> None:
    """List the installed plug-ins: protocols, sources, models, losses, metrics and trackers of other packages."""
    from colonnade.cli.research.protocols import list_plug_ins  # noqa: PLC0415

    list_plug_ins()


def register(app: typer.Typer) -> None:
    """Adds the commands, in the order of `colonnade --help`."""
    for command in (compare, reproduce, attack, protocols, show, plug_ins):
        app.command(rich_help_panel=PANEL)(command)
