"""A tracker, as a plug-in provides it. See docs/trackers.md."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from pydantic import Field

from colonnade.common.errors import EnvironmentFault
from colonnade.common.section import Section

Status = Literal["completed", "interrupted", "failed"]
Parameter = str | int | float | bool


class Tracker(Protocol):
    """One run at one tracker. All calls come from one thread, in order; a call that raises is made again later."""

    def begin(self, parameters: Mapping[str, Parameter]) -> None:
        """Opens the run, or that of an earlier start. `parameters` are settings by their dotted keys."""

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        """Takes finite numbers by name. It may buffer them until `flush`."""

    def artefact(self, path: Path) -> None:
        """Takes a copy of a file; the file is deleted after the call that succeeds."""

    def flush(self) -> None:
        """Sends what is buffered. Called where nothing else waits, and before the end."""

    def end(self, status: Status) -> None:
        """Ends the run at the tracker."""


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker opens.

    Args:
        member: server, or the party's name.
        folder: the member's own folder, which exists.
        base: the folder that paths in the configuration are relative to.
        number: the run's random number, the same at all members.
        round: the round that this start continues from; 0 at the beginning.
        kept: what `keep` stored in an earlier start.
        keep: stores words for later starts, durably.
    """

    federation: str
    member: str
    folder: Path
    base: Path
    number: str = ""
    round: int = 0
    kept: Mapping[str, str] = field(default_factory=dict)
    keep: Callable[[Mapping[str, str]], None] = lambda _words: None

    @property
    def name(self) -> str:
        return f"{self.federation}-{self.member}-{self.number[:8]}"


class TrackerConfig(Section):
    """Base class of a tracker's section."""

    packages: ClassVar[Mapping[str, str]] = {}
    """Modules that must be importable, each with the argument of `pip install` that installs it."""

    name: str = Field(description="of the tracker")
    model: bool = Field(default=False, description="sends the member's own part of the model at the end of a run")

    @abstractmethod
    def open(self, run: TrackedRun) -> Tracker:
        """Makes the tracker's side of a run. Called in the tracker's thread, and again later if it raises."""

    @abstractmethod
    def prepare(self) -> None:
        """Imports what the tracker uses. Called before the run begins, never while another thread computes: libraries
        look each other up among the imported modules, and would find half-imported ones.
        """

    def needed(self) -> Mapping[str, str]:
        """`packages`, as far as this section needs them."""
        return self.packages

    def identity(self) -> str:
        """Distinguishes this tracker from others of the same member: a resumed run continues with what it has kept."""
        return self.name


def refuse_missing(place: str, trackers: tuple[TrackerConfig, ...]) -> None:
    """Refuses a tracker whose package is not installed; `place` is the section's key: server.trackers."""
    for number, config in enumerate(trackers):
        for module, package in config.needed().items():
            if importlib.util.find_spec(module) is None:
                raise EnvironmentFault(
                    f"{place}.{number}: {config.name} needs the package {module}, which is not installed",
                    hint=f"pip install {package}, or leave the tracker out",
                )


def prepare(place: str, trackers: tuple[TrackerConfig, ...]) -> None:
    """Imports the packages of all trackers, before anything of the run is written; `place` as for `refuse_missing`."""
    refuse_missing(place, trackers)
    for number, config in enumerate(trackers):
        try:
            config.prepare()
        except ImportError as failed:
            raise EnvironmentFault(
                f"{place}.{number}: {config.name} cannot be imported: {failed}",
                hint="install the package again, or leave the tracker out",
            ) from failed
