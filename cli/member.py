"""`colonnade server` and `colonnade client`: one process of a federation on this machine."""

from __future__ import annotations

from pathlib import Path

import torch

from cli.folder import run_folder
from cli.progress import Progress
from cli.screen import out as console
from cli.screen import run_to_end
from cli.summary import show_summary
from client.run import ClientRun
from common.config import load
from common.errors import ConfigError, nearest
from server.run import ServerRun


def serve(
    file: Path,
    sets: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    *,
    insecure: bool,
    base: Path | None,
    launched: float,
) -> None:
    """Runs a server to its end. `launched` is when `up` began, which then shows what there is to see."""
    config = load(file, sets)
    if config.server is None:
        raise ConfigError(f"{file}: no `server` section", hint="a server's file has `federation` and `server`")
    _set_threads(config.server.threads)
    progress = None if launched else Progress(console)
    listeners = (progress,) if progress else ()
    with run_folder(out, f"{config.federation.id}-server", resume) as folder:
        base = base or file.parent.resolve()
        run = ServerRun(config.federation, config.server, base, folder, not insecure, launched, listeners)
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
    resume: Path | None,
    *,
    party: str,
    insecure: bool,
    base: Path | None,
    server_file: Path | None,
) -> None:
    """Runs a party to its end. `server_file` is where `up` writes the server's address."""
    config = load(file, sets)
    name = _choose(file, party, list(config.parties))
    own = config.parties[name]
    _set_threads(own.threads)
    find = None if server_file is None else lambda: server_file.read_text() if server_file.exists() else ""
    with run_folder(out, f"{config.federation.id}-{name}", resume) as folder:
        base = base or file.parent.resolve()
        run = ClientRun(name, config.federation, own, base, folder, not insecure, find)
        run_to_end(run.run())


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
