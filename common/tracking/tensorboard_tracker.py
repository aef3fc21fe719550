"""TensorBoard: event files in a folder, written by TensorBoard's own writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from colonnade.common.text import literal
from colonnade.common.tracking.tracker import Parameter, Status


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
        if self._round:
            log = SessionLog(status=SessionLog.START)
            self._add(Event(session_log=log), self._round + 1)
        rows = "".join(f"| {literal(key)} | {literal(value)} |\n" for key, value in parameters.items())
        self._add(Event(summary=_text("parameters", f"| key | value |\n|---|---|\n{rows}")), self._round)

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(Event(summary=Summary(value=scalars)), round)

    def artefact(self, path: Path) -> None:
        """Ignores files: the run's folder holds them already."""

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
        """Calls the writer; a failed writer stays failed, so the next call opens another file."""
        try:
            act()
        except Exception:
            self._writer = None
            raise

    def _open(self) -> EventFileWriter:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = EventFileWriter(str(self._folder), flush_secs=10)
        return self._writer


def _text(tag: str, words: str) -> Any:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[words.encode()], tensor_shape=shape)
    plugin = SummaryMetadata.PluginData(plugin_name="text")
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)])
