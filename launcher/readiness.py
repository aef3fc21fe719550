"""Checks of a whole configuration before its members are started."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.checkpointing.checkpoints import Checkpoints
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.common.tracking.tracker import refuse_missing


def check_members(config: Config, where: str) -> None:
    """Refuses a configuration that cannot run as a whole: it needs the server's section and every party's.

    Args:
        where: its file, for messages.

    Raises:
        ConfigError: naming what is missing.
        EnvironmentFault: a tracker's package is not installed.
    """
    check_trackers(config)
    if config.server is None:
        raise ConfigError(f"{where}: no `server` section", hint="`up` runs the server too; it needs its labels")
    missing = [name for name in config.federation.names if name not in config.parties]
    if missing:
        raise ConfigError(
            f"{where}: no section for {', '.join(missing)}",
            hint="add parties.NAME for each, or `every_party` for all",
        )


def check_trackers(config: Config) -> None:
    """Refuses trackers whose packages are not installed on this machine. Raises EnvironmentFault."""
    if config.server is not None:
        refuse_missing("server.trackers", config.server.trackers)
    for name, party in config.parties.items():
        refuse_missing(f"parties.{name}.trackers", party.trackers)


def refuse_others(config: Config, folder: Path) -> None:
    """Refuses to resume a run whose members cannot continue under this configuration.

    Nothing is written before.

    Raises:
        CheckpointError: checkpoints are another member's, or of another configuration.
    """
    hashes = config.federation.lasting_hashes()
    for name in (SERVER, *config.federation.names):
        with whose(name):
            Checkpoints(RunFolder(folder).member(name).checkpoints).refuse_others(name, hashes)
