"""YAML lists of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

S = TypeVar("S", bound=Section)


class Printed(float):
    """A number of a list that keeps its decimal digits: 95.00 has two."""

    digits: int = 0


class _ListLoader(yaml.SafeLoader):
    """Keeps the digits of numbers."""


def _printed(loader: _ListLoader, node: yaml.ScalarNode) -> float:
    number = Printed(loader.construct_yaml_float(node))
    number.digits = len(node.value.partition("e")[0].partition(".")[2])
    return number


_ListLoader.add_constructor("tag:yaml.org,2002:float", _printed)


def read_list(path: Path, kind: type[S]) -> S:
    """Reads and validates a list; errors name the file and the key."""
    tree: Any = yaml.load(path.read_text(encoding="utf-8"), _ListLoader)  # noqa: S506  # a SafeLoader
    try:
        return kind.model_validate(tree)
    except ConfigError as wrong:
        raise ConfigError(f"{path}: {wrong}", hint=wrong.hint) from None
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
