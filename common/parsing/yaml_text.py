"""Configurations as YAML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, where PyYAML has it, takes a quarter of the time


def yaml_text(tree: Mapping[str, Any], **layout: Any) -> str:
    """The text that `yaml.safe_dump` gives, keys in the order of the tree; `layout` are its keywords."""
    return str(yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, **layout))
