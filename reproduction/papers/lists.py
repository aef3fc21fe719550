"""Lists of what is to be run, as YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

S = TypeVar("S", bound=Section)


def read_list(path: Path, kind: type[S]) -> S:
    """A file of this kind. Raises ConfigError if it is wrong: it names the file and the key."""
    tree: Any = yaml.safe_load(path.read_text())
    try:
        return kind.model_validate(tree)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
