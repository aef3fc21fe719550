"""`colonnade server` and `colonnade client`: one process of a federation on this machine."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError

from colonnade.client.member.process import PartyMember
from colonnade.client.ranks.group import Group, World
from colonnade.common.config.chaos import read_chaos
from colonnade.common.config.members import Config, Endpoint, PartyConfig, ServerConfig
from colonnade.common.data.draws import reseed_torch
from colonnade.common.errors import ConfigError, InputError, nearest
from colonnade.common.observability.telemetry import Event, advances
from colonnade.common.parsing.consistency import check_workers
from colonnade.common.parsing.dump import config_tree, yaml_text
from colonnade.common.parsing.earlier_defaults import as_begun
from colonnade.common.parsing.file import load
from colonnade.common.run.rate_limit import Digest
from colonnade.common.run.run_folder import MemberFolder, RunFolder
from colonnade.launcher.folder_lock import locked_folder
from colonnade.launcher.named_tables import Tables, with_tables
from colonnade.launcher.ranks import party_ranks, start_ranks
from colonnade.reports.console.outputs import write_text
from colonnade.reports.console.progress import PartyProgress, Progress
from colonnade.reports.console.run_to_end import run_to_end
from colonnade.reports.console.screen import out as console
from colonnade.reports.console.summary import show_summary
from colonnade.server.member.training import ServerRun

Own = TypeVar("Own", ServerConfig, PartyConfig)


@dataclass(frozen=True)
class Placement:
    """Folder of a member's run.

    Args:
        out: a new run's; None takes a folder under runs/.
    """

    out: Path | None
    resume: Path | None

    @classmethod
    def of(cls, out: Path | None, resume: Path | None, within: Path | None) -> Self:
        """`within` means `out` or `resume`, so that a restarted service can pass the same arguments every time."""
        if within is None:
            return cls(out, resume)
        if out is not None or resume is not None:
            raise InputError("--in with --out or --resume: it stands for either", hint="give one of the three")
        return cls(None, within) if MemberFolder(within).begun else cls(within, None)

    def open(self, name: str) -> AbstractContextManager[Path]:
        return locked_folder(self.out, name, self.resume)


def serve(
    file: Path,
    sets: tuple[str, ...],
    place: Placement,
    *,
    insecure: bool,
    base: Path | None,
    launched: float,
) -> None:
    """Runs a server to its end. `launched` is the time at which `up` began; the server then prints the progress."""
    config = load(file, sets, begun=place.resume is not None)
    if config.server is None:
        raise ConfigError(f"{file}: no `server` section", hint="a server's file has `federation` and `server`")
    server = config.server if launched else watched(config.server)
    prepare_torch(server.threads)
    progress = None if launched else Progress(console)
    with place.open(f"{config.federation.id}-server") as folder:
        config = as_begun(config, folder)
        keeping = _Keeping(config, file, folder, resumed=place.resume is not None)
        listeners = (Digest(progress), keeping) if progress else ()
        base = base or file.parent.resolve()
        run = ServerRun(
            config.federation, server, base, folder, secure=not insecure, launched=launched, listeners=listeners
        )
        try:
            run_to_end(run.run())
        finally:
            if progress:
                progress.close()
            if progress and (run.went_on or place.resume is None):
                show_summary(console, folder)


def participate(
    file: Path,
    sets: tuple[str, ...],
    place: Placement,
    *,
    party: str,
    insecure: bool,
    base: Path | None,
    server_file: Path | None,
    chaos: tuple[str, ...] = (),
    answers: bool = False,
    tables: Tables | None = None,
) -> None:
    """Runs a party to its end. `up` writes the server's address to `server_file`."""
    config = with_tables(load(file, (*sets, *read_chaos(chaos)), begun=place.resume is not None), tables or {})
    name = _choose(file, party, list(config.parties))
    own = config.parties[name] if server_file else watched(config.parties[name])
    world, base = World.of_environment(), base or file.parent.resolve()
    ranks: AbstractContextManager[Group | None] = nullcontext()
    if world.size == 1 and own.workers > 1 and not answers:
        start_ranks(own.workers, own.threads)
    if world.size > 1 and not answers:
        own = own.model_copy(update={"workers": world.size, "threads": own.threads // world.local})
        check_workers(config.federation, name, own)
        ranks = party_ranks(world, config.federation, name, own, base)
    progress = None if server_file or world.rank else PartyProgress(console, name)
    listeners = (Digest(progress),) if progress else ()
    prepare_torch(own.threads)
    find = None if server_file is None else partial(_address, server_file)
    with ranks as group, place.open(f"{config.federation.id}-{name}") as folder:
        config = as_begun(config, folder)
        run = PartyMember(
            name,
            config.federation,
            own,
            base,
            out=folder,
            secure=not insecure,
            find_address=find,
            listeners=listeners,
            answers=answers,
            ranks=group,
        )
        if progress:
            progress.say(f"dials {own.connect}")
        try:
            run_to_end(run.run())
        finally:
            if progress:
                progress.close()


def _address(file: Path) -> str:
    """Reads the address that `up` has written; "" while the server restarts."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


class _Keeping:
    """Writes the resolved configuration to the run's folder once: at the start, or when a resumed run advances.

    Args:
        file: source of the configuration, which is never overwritten.
        resumed: whether the folder already holds a run with a configuration.
    """

    def __init__(self, config: Config, file: Path, folder: Path, *, resumed: bool) -> None:
        self._config, self._path, self._resumed = config, RunFolder(folder).config, resumed
        self._done = self._path.resolve() == file.resolve()

    def __call__(self, event: Event) -> None:
        if self._done or not (advances(event) if self._resumed else event["kind"] == "listening"):
            return
        self._done = True
        tree = {key: below for key, below in config_tree(self._config).items() if key in ("federation", "server")}
        write_text(self._path, yaml_text(tree))


def watched(own: Own) -> Own:
    """Takes `metrics` and `health` from the environment, which container images set, unless the section has them."""
    update = {}
    for what in ("metrics", "health"):
        variable = f"COLONNADE_{what.upper()}"
        if os.environ.get(variable) and not getattr(own, what):
            try:
                update[what] = TypeAdapter(Endpoint).validate_python(os.environ[variable])
            except ValidationError as wrong:
                reason = wrong.errors()[0]["ctx"]["error"]
                raise ConfigError(f"{variable} = {os.environ[variable]!r}: {reason}", hint="or a port alone") from None
    return own.model_copy(update=update)


def _choose(file: Path, wanted: str, there: list[str]) -> str:
    if wanted:
        if wanted not in there:
            raise ConfigError(f"{file}: no section parties.{wanted}{nearest(wanted, there)}")
        return wanted
    if len(there) != 1:
        found = f"sections for {', '.join(there)}" if there else "no `parties` section"
        raise ConfigError(f"{file} has {found}", hint="name the one to run: --party NAME")
    return there[0]


def prepare_torch(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)
    reseed_torch()
