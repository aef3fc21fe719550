"""Arguments of the commands that run or serve a federation, and start a fork server before they import torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import (
    Absent,
    Base,
    Faults,
    File,
    Given,
    Insecure,
    Out,
    Resume,
    Sets,
    Tables,
    Wait,
    Within,
    read_tables,
)
from colonnade.launcher.processes import answering, started
from colonnade.server.prediction.terms import PredictionTerms


def up(
    file: File = None,
    sets: Sets = None,
    chaos: Faults = None,
    out: Out = None,
    resume: Resume = None,
    insecure: Insecure = False,
    dashboard: Annotated[
        str, typer.Option(metavar="[HOST:PORT]", help="serve the run's page during the run; default: on loopback")
    ] = "",
    ids: Annotated[
        Path | None,
        typer.Option(
            "--predict",
            metavar="IDS.csv",
            help="after the run, predict these ids into RUN/predictions.csv",
            show_default=False,
        ),
    ] = None,
) -> None:
    changes, faults = tuple(sets or ()), tuple(chaos or ())
    with started() as processes:
        from colonnade.cli.run import up as command  # noqa: PLC0415  # while the fork server imports torch

        ended = command.up(
            processes, file, changes, out, resume, chaos=faults, insecure=insecure, dashboard=dashboard, ids=ids
        )
    command.end(ended, ids, insecure=insecure)


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
    from colonnade.cli.run.member import Placement, serve  # noqa: PLC0415

    serve(file, tuple(sets or ()), Placement.of(out, resume, within), insecure=insecure, base=base, launched=launched)


def client(
    file: Given,
    party: Annotated[str, typer.Option(help="name of the party, if the file has several")] = "",
    sets: Sets = None,
    chaos: Faults = None,
    out: Out = None,
    resume: Resume = None,
    within: Within = None,
    insecure: Insecure = False,
    base: Base = None,
    server_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    from colonnade.cli.run.member import Placement, participate  # noqa: PLC0415

    place = Placement.of(out, resume, within)
    changes, faults = tuple(sets or ()), tuple(chaos or ())
    participate(file, changes, place, chaos=faults, party=party, insecure=insecure, base=base, server_file=server_file)


def simulate(
    file: Annotated[Path | None, typer.Argument(help="configuration", show_default=False)] = None,
    sets: Sets = None,
    chaos: Faults = None,
    out: Out = None,
    resume: Resume = None,
) -> None:
    from colonnade.cli.run.simulate import simulate as run  # noqa: PLC0415

    run(file, tuple(sets or ()), out, resume, chaos=tuple(chaos or ()))


def predict(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    ids: Annotated[Path, typer.Option(help="CSV file with the ids to predict", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="CSV file to write", show_default=False)],
    key: Annotated[str, typer.Option(help="the column of ids, if the file has several")] = "",
    tables: Tables = None,
    file: Annotated[
        Path | None, typer.Option(help="the server's configuration, if parties run elsewhere", show_default=False)
    ] = None,
    absent: Absent = "refuse",
    wait: Wait = None,
    own: Annotated[
        bool, typer.Option("--own", help="vfedmh: parties predict too, into own-predictions.csv in their folders")
    ] = False,
    insecure: Insecure = False,
) -> None:
    with answering(file is None and run.is_dir()) as processes:
        from colonnade.cli.run.predict import predict as run_it  # noqa: PLC0415

        terms = PredictionTerms(absent=absent, patience=wait, own=own, secure=not insecure)
        run_it(run, ids, out, key, file, terms, tables=read_tables(tables), processes=processes)


def serve(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    http: Annotated[str, typer.Option(metavar="HOST:PORT", help="JSON over HTTP; '' disables it")] = "127.0.0.1:8000",
    grpc: Annotated[str, typer.Option(metavar="HOST:PORT", help="gRPC; '' disables it")] = "127.0.0.1:8001",
    tokens: Annotated[Path | None, typer.Option(help="tokens of the callers; default: RUN/serve.tokens")] = None,
    rate: Annotated[float, typer.Option(help="ids a second that one caller may request", min=1)] = 1000.0,
    certificate: Annotated[Path | None, typer.Option(help="PEM; without one, loopback only")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM, of the certificate")] = None,
    ids: Annotated[
        Path | None, typer.Option(help="CSV file with the ids to answer; default: the run's rows", show_default=False)
    ] = None,
    column: Annotated[str, typer.Option(help="the column of ids, if the file has several")] = "",
    tables: Tables = None,
    file: Annotated[
        Path | None, typer.Option(help="the server's configuration, if parties run elsewhere", show_default=False)
    ] = None,
    absent: Absent = "refuse",
    wait: Wait = None,
    insecure: Insecure = False,
) -> None:
    with answering(file is None and run.is_dir()) as processes:
        from colonnade.cli.run import serve as service  # noqa: PLC0415

        terms = PredictionTerms(absent=absent, patience=wait, secure=not insecure, lasting=True)
        doors = service.Doors(http, grpc, tokens, rate, certificate, key)
        asked = None if ids is None else (ids, column)
        service.serve(run, file, terms, doors, ids=asked, tables=read_tables(tables), processes=processes)


def answer(
    file: Given,
    within: Annotated[Path, typer.Option("--in", help="the folder of a run that has ended", show_default=False)],
    party: Annotated[str, typer.Option(help="name of the party, if the file has several")] = "",
    sets: Sets = None,
    tables: Tables = None,
    insecure: Insecure = False,
    base: Base = None,
    server_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    from colonnade.cli.run.member import Placement, participate  # noqa: PLC0415

    participate(
        file,
        tuple(sets or ()),
        Placement(None, within),
        tables=read_tables(tables),
        party=party,
        insecure=insecure,
        base=base,
        server_file=server_file,
        answers=True,
    )


def health(words: typer.Context) -> None:
    from colonnade.cli.run.health import main as probe  # noqa: PLC0415  # `colonnade` reaches it without this file

    probe(words.args)
