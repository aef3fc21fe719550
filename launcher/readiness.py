"""Checks of a whole configuration before its members are started."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.checkpointing.checkpoints import Checkpoints
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.runtime.run_folder import RunFolder


def check_members(config: Config, where: str) -> None:
    """Refuses a configuration that cannot run as a whole: it needs the server's section and every party's.

    Args:
        where: its file, for messages.

    Raises:
        ConfigError: naming what is missing.
    """
    if config.server is None:
        raise ConfigError(f"{where}: no `server` section", hint="`up` runs the server too; it needs its labels")
    missing = [name for name in config.federation.names if name not in config.parties]
    if missing:
        raise ConfigError(
            f"{where}: no section for {', '.join(missing)}",
            hint="add parties.NAME for each, or `every_party` for all",
        )


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
