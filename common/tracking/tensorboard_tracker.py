"""TensorBoard: event files in a folder, written by TensorBoard's own writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from colonnade.common.escaped import plain
from colonnade.common.run.own_files import refuse_path
from colonnade.common.tracking.tracker import Parameter, Status, TrackedRun, TrackerConfig

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

EXTRA = "'colonnade[tensorboard]'"


class TensorBoardConfig(TrackerConfig):
    """`tensorboard`: scalars by round, and parameters as text."""

    packages: ClassVar[Mapping[str, str]] = {"tensorboard": EXTRA}

    name: Literal["tensorboard"] = "tensorboard"
    model: Literal[False] = Field(default=False, description="TensorBoard stores no models")
    folder: Path | None = Field(default=None, description="of the event files; left out, tensorboard in the run's own")

    def prepare(self) -> None:
        import tensorboard.compat.proto.event_pb2  # noqa: PLC0415
        import tensorboard.compat.proto.summary_pb2  # noqa: PLC0415
        import tensorboard.summary.writer.event_file_writer  # noqa: F401, PLC0415

    def open(self, run: TrackedRun) -> TensorBoardTracker:
        below = run.folder / "tensorboard" if self.folder is None else run.base / self.folder / refuse_path(run.name)
        return TensorBoardTracker(below, run.round)


class TensorBoardTracker:
    """One start of a run: a file of its own in the run's folder, so that a resumed run continues the same curves.

    Args:
        folder: made if it is missing.
        round: the round to continue from. Points after it, of an earlier start, are marked as void.
    """

    def __init__(self, folder: Path, round: int) -> None:
        self._folder, self._round = folder, round
        self._writer: EventFileWriter | None = None

    def begin(self, parameters: Mapping[str, Parameter]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # noqa: PLC0415

        if self._round:
            log = SessionLog(status=SessionLog.START)
            self._add(Event(session_log=log), self._round + 1)
        rows = "".join(f"| {plain(key)} | {plain(value)} |\n" for key, value in parameters.items())
        self._add(Event(summary=_text("parameters", f"| key | value |\n|---|---|\n{rows}")), self._round)

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415

        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(Event(summary=Summary(value=scalars)), round)

    def artefact(self, path: Path) -> None:
        """Has no place for files: the run's folder holds them already."""

    def flush(self) -> None:
        if self._writer is not None:
            self._call(self._writer.flush)

    def end(self, status: Status) -> None:  # noqa: ARG002  # a curve has no status
        if self._writer is not None:
            self._call(self._writer.close)

    def _add(self, event: Any, round: int) -> None:
        event.wall_time, event.step = time.time(), round
        writer = self._open()
        self._call(lambda: writer.add_event(event))

    def _call(self, act: Callable[[], None]) -> None:
        """A writer that has failed stays failed: the next call opens another file."""
        try:
            act()
        except Exception:
            self._writer = None
            raise

    def _open(self) -> EventFileWriter:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventFileWriter(str(self._folder), flush_secs=10)
        return self._writer


def _text(tag: str, words: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # noqa: PLC0415
    from tensorboard.compat.proto.tensor_pb2 import TensorProto  # noqa: PLC0415
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto  # noqa: PLC0415
    from tensorboard.compat.proto.types_pb2 import DT_STRING  # noqa: PLC0415

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[words.encode()], tensor_shape=shape)
    plugin = SummaryMetadata.PluginData(plugin_name="text")
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)])
