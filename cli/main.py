"""The command line: `colonnade COMMAND`. One file a command; heavy imports wait until one is chosen."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.data import datasets, tables
from colonnade.cli.keys import certs
from colonnade.cli.keys.tokens import token
from colonnade.cli.options import Absent, Base, Faults, File, Given, Insecure, Out, Resume, Sets, Wait, Within
from colonnade.common.runtime.permissions import keep_private
from colonnade.common.version import VERSION
from colonnade.reports.console.screen import INTERRUPTED, fail
from colonnade.reports.dashboard.address import completed

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Every command takes --debug, which shows tracebacks.",
)
app.add_typer(certs.app, name="certs")
app.add_typer(datasets.app, name="datasets")
app.add_typer(tables.app, name="tables")
app.command()(token)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"colonnade {VERSION}")
        raise typer.Exit


@app.callback()
def colonnade(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="says which version this is")
    ] = False,
) -> None:
    """Vertical federated learning over real machines: labels at a server, columns at parties."""


@app.command()
def up(
    file: File = None,
    sets: Sets = None,
    chaos: Faults = None,
    out: Out = None,
    resume: Resume = None,
    insecure: Insecure = False,
    dashboard: Annotated[
        str, typer.Option(metavar="[HOST:PORT]", help="serves the run's page meanwhile; on loopback unless told")
    ] = "",
    ids: Annotated[
        Path | None,
        typer.Option(
            "--predict", metavar="IDS.csv", help="then predicts these: RUN/predictions.csv", show_default=False
        ),
    ] = None,
) -> None:
    """Runs a whole federation on this machine: a server and every party, each a process."""
    from colonnade.cli.run.up import up as run  # noqa: PLC0415

    run(file, _overrides(sets, chaos), out, resume, insecure=insecure, dashboard=dashboard, ids=ids)


@app.command()
def server(
    file: Given,
    sets: Sets = None,
    out: Out = None,
    resume: Resume = None,
    within: Within = None,
    insecure: Insecure = False,
    base: Base = None,
    launched: Annotated[float, typer.Option(hidden=True)] = 0.0,
) -> None:
    """Runs the server of a federation on this machine."""
    from colonnade.cli.run.member import Place, serve  # noqa: PLC0415

    serve(file, tuple(sets or ()), Place.of(out, resume, within), insecure=insecure, base=base, launched=launched)


@app.command()
def client(
    file: Given,
    party: Annotated[str, typer.Option(help="whose section, where a file has several")] = "",
    sets: Sets = None,
    chaos: Faults = None,
    out: Out = None,
    resume: Resume = None,
    within: Within = None,
    insecure: Insecure = False,
    base: Base = None,
    server_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Runs one party of a federation on this machine."""
    from colonnade.cli.run.member import Place, participate  # noqa: PLC0415

    place = Place.of(out, resume, within)
    changes = _overrides(sets, chaos)
    participate(file, changes, place, party=party, insecure=insecure, base=base, server_file=server_file)


@app.command()
def answer(
    file: Given,
    within: Annotated[Path, typer.Option("--in", help="the folder of a run that has ended", show_default=False)],
    party: Annotated[str, typer.Option(help="whose section, where a file has several")] = "",
    sets: Sets = None,
    insecure: Insecure = False,
    base: Base = None,
    server_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Runs one party on this machine that answers for its trained model, until the server says farewell."""
    from colonnade.cli.run.member import Place, participate  # noqa: PLC0415

    participate(
        file,
        tuple(sets or ()),
        Place(None, within),
        party=party,
        insecure=insecure,
        base=base,
        server_file=server_file,
        answers=True,
    )


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    ids: Annotated[Path, typer.Option(help="csv of who is asked for", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="csv of what comes of it", show_default=False)],
    key: Annotated[str, typer.Option(help="the column of ids, where the file has several")] = "",
    file: Annotated[
        Path | None, typer.Option(help="the server's own, where parties run elsewhere", show_default=False)
    ] = None,
    absent: Absent = "refuse",
    wait: Wait = None,
    own: Annotated[
        bool, typer.Option("--own", help="vfedmh: parties predict too, into own-predictions.csv in their folders")
    ] = False,
    insecure: Insecure = False,
) -> None:
    """Asks the model of a run that has ended: ids come in as csv, classes and probabilities go out."""
    from colonnade.cli.run.predict import predict as run_it  # noqa: PLC0415
    from colonnade.server.prediction.terms import PredictionTerms  # noqa: PLC0415

    run_it(run, ids, out, key, file, PredictionTerms(absent=absent, patience=wait, own=own, secure=not insecure))


@app.command()
def serve(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    http: Annotated[str, typer.Option(metavar="HOST:PORT", help="JSON over HTTP; '' shuts it")] = "127.0.0.1:8000",
    grpc: Annotated[str, typer.Option(metavar="HOST:PORT", help="gRPC; '' shuts it")] = "127.0.0.1:8001",
    tokens: Annotated[Path | None, typer.Option(help="who may ask; left out, RUN/serve.tokens")] = None,
    rate: Annotated[float, typer.Option(help="ids a second that one caller may ask for", min=1)] = 1000.0,
    certificate: Annotated[Path | None, typer.Option(help="PEM; without one it is loopback alone")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM, of the certificate")] = None,
    file: Annotated[
        Path | None, typer.Option(help="the server's own, where parties run elsewhere", show_default=False)
    ] = None,
    absent: Absent = "refuse",
    wait: Wait = None,
    insecure: Insecure = False,
) -> None:
    """Answers callers for the model of a run that has ended, until it is stopped."""
    from colonnade.cli.run.serve import Doors  # noqa: PLC0415
    from colonnade.cli.run.serve import serve as run_it  # noqa: PLC0415
    from colonnade.server.prediction.terms import PredictionTerms  # noqa: PLC0415

    terms = PredictionTerms(absent=absent, patience=wait, secure=not insecure)
    run_it(run, file, terms, Doors(http, grpc, tokens, rate, certificate, key))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or with --file of one party", show_default=False)],
    party: Annotated[str, typer.Option(help="whose part", show_default=False)],
    file: Annotated[Path | None, typer.Option(help="the party's own, of a run elsewhere", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="where to; the party's folder", show_default=False)] = None,
) -> None:
    """Writes a party's part of a model as safetensors and as a program that torch.export reads."""
    from colonnade.cli.read.export import export as run_it  # noqa: PLC0415

    run_it(run, party, file, out)


@app.command()
def deal(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="configuration; left out, the demo",
            envvar="COLONNADE_EXPERIMENT",
            show_envvar=False,
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="where to", show_default=False)] = Path("federation"),
    connect: Annotated[
        str, typer.Option("--connect", metavar="HOST:PORT", help="where parties find the server")
    ] = "127.0.0.1:7400",
    sets: Sets = None,
    days: Annotated[int, typer.Option(help="how long certificates hold")] = 30,
    owner: Annotated[str, typer.Option(metavar="UID[:GID]", help="who is to own what is dealt")] = "",
) -> None:
    """Deals a folder to every member: its configuration, its keys, and its columns or labels alone."""
    from colonnade.cli.data.deal import Terms, read_owner  # noqa: PLC0415
    from colonnade.cli.data.deal import deal as run  # noqa: PLC0415
    from colonnade.cli.launcher.demo import demo_file  # noqa: PLC0415

    run(file or demo_file(), tuple(sets or ()), out, Terms(connect, days, read_owner(owner)))


@app.command()
def simulate(file: Given, sets: Sets = None, chaos: Faults = None, out: Out = None) -> None:
    """Runs a federation in this process on a virtual clock: an hour of stragglers in seconds."""
    from colonnade.cli.run.simulate import simulate as run  # noqa: PLC0415

    run(file, _overrides(sets, chaos), out)


@app.command()
def check(file: Given, sets: Sets = None) -> None:
    """Checks a configuration, and the data and keys that it names, and starts nothing."""
    from colonnade.cli.data.check import check as run  # noqa: PLC0415

    run(file, tuple(sets or ()))


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(help="the folder of a finished run", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", help="where to; the run's folder", show_default=False)] = None,
    sigma: Annotated[float, typer.Option(help="of the noise, in units of the scaled features")] = 1.0,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="top:50%", help="a run with fewer parties; repeatable")
    ] = None,
) -> None:
    """Says how much each party of a finished run matters: a page with pictures."""
    from colonnade.cli.read.explain import explain as run_it  # noqa: PLC0415

    run_it(run, out, sigma, tuple(keep or ()))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="the folders of runs", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", help="the page's file", show_default=False)] = None,
    again: Annotated[
        bool, typer.Option("--follow", help="makes it again every 5 s until the run, which need not have begun, ends")
    ] = False,
) -> None:
    """Makes a page of what a run's folder says: curves, timelines, traffic, privacy; of several runs, a comparison."""
    if again and len(runs) == 1:
        from colonnade.cli.read.follow import follow  # noqa: PLC0415

        return follow(runs[0], out)
    from colonnade.cli.read.report import report as run_it  # noqa: PLC0415
    from colonnade.common.errors import InputError  # noqa: PLC0415

    if again:
        raise InputError("--follow: expected one run", hint="compare several once they have ended")
    return run_it(runs, out)


@app.command()
def reproduce(
    which: Annotated[str, typer.Argument(metavar="[PAPER[/TABLE]]", help="left out, all", show_default=False)] = "",
    quick: Annotated[bool, typer.Option("--quick", help="the papers' main claims on small data, in minutes")] = False,
    seeds: Annotated[int, typer.Option(help="of every run", min=1)] = 3,
    only_list: Annotated[bool, typer.Option("--list", help="runs nothing: says what there is, in pages too")] = False,
    out: Annotated[Path, typer.Option("--out", help="where results are kept")] = Path("results"),
    processes: Annotated[int, typer.Option(help="runs at a time; 0 is one a processor", min=0)] = 0,
    wire: Annotated[bool, typer.Option("--wire", help="as processes, rather than on the virtual clock")] = False,
) -> None:
    """Runs what the papers report and prints their values beside ours; what is done already is not run again."""
    from colonnade.cli.research.reproduce import Asked, processors  # noqa: PLC0415
    from colonnade.cli.research.reproduce import reproduce as run  # noqa: PLC0415

    run(Asked(which, seeds, out, processes or processors(), quick=quick, only_list=only_list, wire=wire))


@app.command()
def compare(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL...]", help="left out, all", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(help="of every run", min=1)] = 3,
    only_list: Annotated[bool, typer.Option("--list", help="runs nothing: says what there is, in pages too")] = False,
    out: Annotated[Path, typer.Option("--out", help="where results and pages are kept")] = Path("results"),
    processes: Annotated[int, typer.Option(help="runs at a time; 0 is one a processor", min=0)] = 0,
) -> None:
    """Runs all protocols on one task under one budget, and makes a page that says which to take for what."""
    from colonnade.cli.research.compare import Asked  # noqa: PLC0415
    from colonnade.cli.research.compare import compare as run  # noqa: PLC0415
    from colonnade.cli.research.reproduce import processors  # noqa: PLC0415

    run(Asked(tuple(names or ()), seeds, out, processes or processors(), only_list))


@app.command()
def attack(
    run: Annotated[Path, typer.Argument(help="the folder of a run that captured", show_default=False)],
    kind: Annotated[str, typer.Option(help="labels, inversion or membership", show_default=False)],
    party: Annotated[str, typer.Option(help="whose messages; left out, of all that captured")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="where to; RUN/attacks", show_default=False)] = None,
    known: Annotated[float, typer.Option(help="inversion: share of the rows whose features are known")] = 0.2,
    epochs: Annotated[int, typer.Option(help="inversion: captured epochs that are averaged", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="of all that an attacker draws")] = 0,
    shadows: Annotated[int, typer.Option(help="membership: federations that are simulated")] = 4,
) -> None:
    """Says what curious members can make of the messages of a run that was captured."""
    from colonnade.cli.research.attack import Options  # noqa: PLC0415
    from colonnade.cli.research.attack import attack as run_it  # noqa: PLC0415

    run_it(run, kind, out, Options(party, known, epochs, seed, shadows))


@app.command()
def ledger(
    folder: Annotated[Path, typer.Argument(help="a party's own folder, RUN/parties/NAME", show_default=False)],
    check: Annotated[bool, typer.Option("--verify", help="whether its chain of hashes is whole")] = False,
    head: Annotated[bool, typer.Option("--head", help="the newest hash alone, to note elsewhere")] = False,
) -> None:
    """Says what left a party, by its own record: kinds, bytes, rows, protection, epsilon."""
    from colonnade.cli.read.ledger import ledger as run  # noqa: PLC0415

    run(folder, check=check, head=head)


@app.command()
def card(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", help="the card's file; RUN/card.md", show_default=False)] = None,
) -> None:
    """Writes a model card: what was trained on what by whom, how good and how protected it is, and what is not."""
    from colonnade.cli.read.card import card as run_it  # noqa: PLC0415

    run_it(run, out)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def health(words: typer.Context) -> None:
    """Asks a running member's health service: exit code 0 if it is up, or with `--service colonnade` ready."""
    from colonnade.cli.run.health import main as probe  # noqa: PLC0415  # by `colonnade` it is reached without this file

    probe(words.args)


@app.command()
def protocols() -> None:
    """Lists the protocols."""
    from colonnade.cli.research.protocols import list_all  # noqa: PLC0415

    list_all()


@app.command()
def show(name: Annotated[str, typer.Argument(help="a protocol")]) -> None:
    """Prints a protocol: its contract, the server's half and the parties' half."""
    from colonnade.cli.research.protocols import show as run  # noqa: PLC0415

    run(name)


def _overrides(sets: list[str] | None, chaos: list[str] | None) -> tuple[str, ...]:
    if not chaos:
        return tuple(sets or ())
    from colonnade.common.conversation.chaos import read_chaos  # noqa: PLC0415

    return (*(sets or ()), *read_chaos(tuple(chaos)))


def main() -> None:
    """The entry point."""
    # As the first process of a container, which is told nothing that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    if "--debug" in sys.argv:
        sys.argv.remove("--debug")
        os.environ["COLONNADE_DEBUG"] = "1"
    try:
        keep_private()  # before anything is written, by this process or by those that it starts
        app(completed(sys.argv[1:]))
    except Exception as error:  # noqa: BLE001  # the last place that an error can be put into words
        fail(error)


if __name__ == "__main__":
    main()
