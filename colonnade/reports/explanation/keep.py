"""A configuration with a subset of a run's parties: VIMADMM, Section VI-C, "client summarization"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.members import Config
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.parsing.dump import config_tree, yaml_text
from colonnade.common.parsing.file import parse
from colonnade.common.run.durable import write_durably

_PATHS = ("path", "folder", "file", "revoked")


@dataclass(frozen=True)
class Keep:
    """Parties to keep, from the `top` or `bottom` of the ranking: a number, or a fraction of all."""

    end: Literal["top", "bottom"]
    share: int | float

    @classmethod
    def read(cls, words: str) -> Keep:
        """Parses `top:50%`, `bottom:20%`, `top:3`."""
        found = re.fullmatch(r"(top|bottom):(\d+(?:\.\d+)?%|\d+)", words)
        share = float(found[2][:-1]) / 100 if found and found[2].endswith("%") else int(found[2]) if found else 0
        if found is None or share <= 0 or (isinstance(share, float) and share > 1):
            raise InputError(f"--keep {words}: expected a share of the parties", hint="top:50%, bottom:20%, top:3")
        return cls("top" if found[1] == "top" else "bottom", share)

    def choose(self, ranked: Sequence[str]) -> tuple[str, ...]:
        """Returns the kept parties of a ranking, most important first; a fraction is rounded, to at least one party."""
        count = self.share if isinstance(self.share, int) else max(1, round(self.share * len(ranked)))
        if count > len(ranked):
            raise InputError(f"--keep {self.end}:{count}: there are {len(ranked)} parties", hint="keep fewer of them")
        return tuple(ranked[:count] if self.end == "top" else ranked[-count:])


def write(config: Config, base: Path, names: Sequence[str], folder: Path, end: str) -> Path:
    """Writes a file that `up` runs: these parties alone, each with its previous columns.

    Args:
        config: of the whole run.
        base: folder that paths in it are relative to.
        folder: of the new file.
        end: top or bottom, for the file's name.
    """
    tree = reduced(config, base, names)
    path = folder / f"keep-{end}-{len(names)}.yaml"
    title = f"# {config.federation.id} with {len(names)} of its {len(config.federation.names)} parties\n"
    try:
        write_durably(path, (title + yaml_text(tree)).encode())
    except OSError as failed:
        raise EnvironmentFault(f"{path} cannot be written: {failed.strerror}", hint="choose another --out") from None
    return path


def reduced(config: Config, base: Path, names: Sequence[str]) -> dict[str, Any]:
    """The configuration with these parties alone, as plain YAML values with absolute paths."""
    everyone = config.federation.names
    tree = config_tree(config)
    federation, server = tree["federation"], tree["server"]
    federation |= {"id": f"{federation['id']}-{len(names)}", "server": ""}
    federation["parties"] = [name for name in everyone if name in names]
    if isinstance(need := federation["quorum"]["need"], int):
        federation["quorum"]["need"] = min(need, len(names))
    server.pop("identity", None)
    parties = {}
    for name in federation["parties"]:
        split = config.parties[name].data.split.pinned(PartyIndex(everyone.index(name), len(everyone)))
        own = tree["parties"][name]
        own.pop("identity", None)
        own["data"]["split"] = config_tree(split)
        parties[name] = own
    smaller = {**tree, "federation": federation, "server": server, "parties": parties}
    anchored: dict[str, Any] = _anchored(smaller, base)
    parse(anchored, begun=True)  # ensures that the file can be read
    return anchored


def _anchored(value: Any, base: Path, key: str = "") -> Any:
    """Makes relative paths of files below the base absolute, since the new file is in another folder."""
    match value:
        case dict():
            return {name: _anchored(below, base, name) for name, below in value.items()}
        case str() if key in _PATHS:
            file, colon, name = value.partition(":")  # ./tower.py:Tower
            at = (base / file).resolve()
            return f"{at}{colon}{name}" if at.exists() else value
        case _:
            return value
