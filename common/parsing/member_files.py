"""A whole configuration as the files of a run's folder: the whole, and each member's with only its own section."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.parsing.dump import yaml_text
from colonnade.common.run.run_folder import RunFolder


def member_text(tree: Mapping[str, Any], member: str) -> str:
    """YAML of the federation's section and one member's own."""
    own = {SERVER: tree[SERVER]} if member == SERVER else {"parties": {member: tree["parties"][member]}}
    return yaml_text({"federation": tree["federation"], **own})


def config_files(tree: Mapping[str, Any], folder: RunFolder) -> dict[Path, str]:
    """The files by their place in a run's folder, from a dumped configuration."""
    files = {folder.config: yaml_text(tree)}
    files[folder.server_config] = member_text(tree, SERVER)
    for name in tree["federation"]["parties"]:
        files[folder.party(name).config] = member_text(tree, name)
    return files
