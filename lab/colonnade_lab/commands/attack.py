"""`colonnade attack`: attacks by curious members on the messages of a captured run."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from colonnade.common.errors import InputError, nearest
from colonnade.common.run.activity import activity
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports import guarantee
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console
from colonnade_lab.attacks.run import open_run
from colonnade_lab.commands.attack_kinds import KINDS, Options, claimed


def attack(folder: Path, kind: str, out: Path | None, options: Options) -> None:
    """Writes KIND.json, and pictures if there are any, to `out` (default: RUN/attacks), and prints a table."""
    if kind not in KINDS:
        raise InputError(f"--kind {kind}: no such attack{nearest(kind, KINDS)}", hint=f"there are {', '.join(KINDS)}")
    if options.shadows < 1:
        raise InputError(f"--shadows {options.shadows}: expected at least 1", hint="the default is 4")
    if not 0 < options.known < 1:
        raise InputError(f"--known {options.known:g}: expected a share between 0 and 1", hint="the default is 0.2")
    torch.set_num_threads(1)  # small products: threads cost more than they save, here and in BLAS
    chosen = KINDS[kind]
    run = open_run(folder.resolve(), captured=chosen.captured, aligned=chosen.aligned)
    names = run.victims(options.party, captured=chosen.captured and not run.summed)
    place = (out or RunFolder(folder).attacks).resolve()
    make_folder(place)
    with activity(f"attack: {kind}"), threadpool_limits(1):
        found, table = chosen.attack(run, names, options, place)
    path = place / f"{kind}.json"
    about = {
        "attack": kind,
        "run": run.folder.name,
        "protocol": run.protocol,
        **found,
        "claimed_epsilon": guarantee.by_party(run.summary),
        "claimed_person": run.summary.get("person"),
    }
    write_text(path, json.dumps(about, indent=2) + "\n")
    table.note = f"epsilon that was claimed: {claimed(run.summary)}"
    console.show(table)
    console.point("written", path)
