"""`colonnade server` and `colonnade client`: one process of a federation on this machine."""

from __future__ import annotations

from pathlib import Path

import torch

from cli.progress import Progress
from cli.screen import out as console
from cli.screen import run_to_end
from cli.summary import show_summary
from client.run import ClientRun
from common.config import load
from common.errors import ConfigError, EnvironmentFault, nearest
from server.run import ServerRun


def serve(
    file: Path, sets: tuple[str, ...], out: Path | None, *, insecure: bool, base: Path | None, launched: float
) -> None:
    """Runs a server to its end. `launched` is when `up` began, which then shows what there is to see."""
    config = load(file, sets)
    if config.server is None:
        raise ConfigError(f"{file}: no `server` section", hint="a server's file has `federation` and `server`")
    folder = make_folder(out or Path("runs") / f"{config.federation.id}-server")
    _set_threads(config.server.threads)
    progress = None if launched else Progress(console)
    listeners = (progress,) if progress else ()
    run = ServerRun(
        config.federation, config.server, base or file.parent.resolve(), folder, not insecure, launched, listeners
    )
    try:
        run_to_end(run.run())
    finally:
        if progress:
            progress.close()
            show_summary(console, folder)


def participate(
    file: Path,
    sets: tuple[str, ...],
    out: Path | None,
    *,
    party: str,
    insecure: bool,
    base: Path | None,
    server_file: Path | None,
) -> None:
    """Runs a party to its end. `server_file` is where `up` writes the server's address."""
    config = load(file, sets)
    name = _choose(file, party, list(config.parties))
    folder = make_folder(out or Path("runs") / f"{config.federation.id}-{name}")
    own = config.parties[name]
    _set_threads(own.threads)
    find = None if server_file is None else lambda: server_file.read_text() if server_file.exists() else ""
    run = ClientRun(name, config.federation, own, base or file.parent.resolve(), folder, not insecure, find)
    run_to_end(run.run())


def make_folder(folder: Path) -> Path:
    """Makes a run's folder; refuses one that holds a run already.

    Raises:
        EnvironmentFault: it is not empty, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any((folder / name).exists() for name in ("summary.json", "events.jsonl", "ledger.jsonl"))
    except OSError as failed:
        raise EnvironmentFault(f"{folder} cannot be made: {failed.strerror}", hint="choose another --out") from None
    if used:
        raise EnvironmentFault(f"{folder} holds a run already", hint="choose another --out, or remove it")
    return folder


def _choose(file: Path, wanted: str, there: list[str]) -> str:
    if wanted:
        if wanted not in there:
            raise ConfigError(f"{file}: no section parties.{wanted}{nearest(wanted, there)}")
        return wanted
    if len(there) != 1:
        found = f"sections for {', '.join(there)}" if there else "no `parties` section"
        raise ConfigError(f"{file} has {found}", hint="name the one to run: --party NAME")
    return there[0]


def _set_threads(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)
