"""`trackers` of a member's section: a list of names, or of sections that begin with a name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, WithJsonSchema

from colonnade.common.errors import ConfigError, nearest, shown
from colonnade.common.run.files import refuse_path
from colonnade.common.run.plug_ins import PlugIns
from colonnade.common.tracking.mlflow_section import MlflowConfig
from colonnade.common.tracking.tracker import TrackedRun, Tracker, TrackerConfig

_TENSORBOARD = "colonnade.common.tracking.tensorboard_tracker"


class TensorBoardConfig(TrackerConfig):
    """`tensorboard`: scalars by round, and parameters as text."""

    packages: ClassVar[Mapping[str, str]] = {"tensorboard": "'colonnade[tensorboard]'"}

    name: Literal["tensorboard"] = "tensorboard"
    model: Literal[False] = Field(default=False, description="TensorBoard stores no models")
    folder: Path | None = Field(default=None, description="of the event files; left out, tensorboard in the run's own")

    def prepare(self) -> None:
        import_module(_TENSORBOARD)

    def open(self, run: TrackedRun) -> Tracker:
        below = run.folder / "tensorboard" if self.folder is None else run.base / self.folder / refuse_path(run.name)
        tracker: Tracker = import_module(_TENSORBOARD).TensorBoardTracker(below, run.round)
        return tracker


BUILT_IN: Mapping[str, type[TrackerConfig]] = {"mlflow": MlflowConfig, "tensorboard": TensorBoardConfig}

OUTSIDE = PlugIns("trackers", BUILT_IN)
"""Trackers of installed packages: each entry point names its section, a subclass of TrackerConfig."""

_FORM = "a list of names, or of {name: ..., keys}"


def read_trackers(value: Any, place: str) -> tuple[TrackerConfig, ...]:
    """Reads `trackers`: a name, a list of names or sections as in a file, or sections that are read already.

    Values of keys are never quoted in an error: a URI may contain a password. `place` is the value's key, for errors.
    """
    given = [value] if isinstance(value, str | dict) else value
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{place}{shown(value)}: expected {_FORM}", hint="for example [tensorboard]")
    read = tuple(_read(one, f"{place}.{number}") for number, one in enumerate(given))
    for number, one in enumerate(read):
        if any(one.identity() == other.identity() for other in read[:number]):
            raise ConfigError(f"{place}.{number}: the tracker {one.name} is listed twice", hint="leave one of them out")
    return read


def _read(value: Any, place: str) -> TrackerConfig:
    if isinstance(value, TrackerConfig):
        return value
    tree = {"name": value} if isinstance(value, str) else value
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str):
        raise ConfigError(f"{place}: expected a name, or keys with a name", hint=f"there are {', '.join(_names())}")
    section = _section(tree["name"], place)
    try:
        return section.model_validate(tree)
    except ConfigError as refused:
        raise ConfigError(f"{place}.{refused}", hint=refused.hint) from None
    except ValidationError as invalid:
        error = invalid.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, error["loc"]))
        if error["type"] == "extra_forbidden":
            raise ConfigError(
                f"{place}.{key}: unknown key{nearest(key, section.model_fields)}",
                hint=f"{tree['name']} has {', '.join(section.model_fields)}",
            ) from None
        reason = error["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{place}.{key}: {reason}") from None


def _section(name: str, place: str) -> type[TrackerConfig]:
    OUTSIDE.refuse_clash(name)
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in OUTSIDE.entries:
        hint = f"there are {', '.join(_names())}; other packages can add some: docs/trackers.md"
        raise ConfigError(f"{place}.name = {name!r}: unknown tracker{nearest(name, _names())}", hint=hint)
    found = OUTSIDE.load(name)
    if not (isinstance(found, type) and issubclass(found, TrackerConfig)):
        raise ConfigError(
            f"{OUTSIDE.describe(name)}: {OUTSIDE.entries[name].value} is no subclass of TrackerConfig",
            hint="docs/trackers.md describes the section of a tracker",
        )
    return found


def _names() -> list[str]:
    return [*BUILT_IN, *OUTSIDE.entries]


_ONE = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]}

Trackers = Annotated[
    tuple[SerializeAsAny[TrackerConfig], ...],
    BeforeValidator(lambda value: read_trackers(value, "trackers")),
    WithJsonSchema({"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE}]}),  # other packages add sections
]
