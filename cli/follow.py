"""`colonnade report --follow`: the page of a run that goes on, made again as it goes."""

from __future__ import annotations

import time
from pathlib import Path

from cli.screen import out as console
from common.lines import read_lines

_PERIOD = 5.0  # seconds between two pages
_PATIENCE = 0.5  # seconds between two looks for a run that has not begun


def follow(folder: Path, out: Path | None) -> None:
    """Writes the page every few seconds until the run has come to its end; an interrupted one may go on.

    What makes pages is imported when there is something to show: until then the members need the machine.

    Args:
        folder: of the run, which need not have begun.
        out: as for `report`.

    Raises:
        ColonnadeError: as `report`.
    """
    console.print(f"waits for a run in {folder}", markup=False, soft_wrap=True)
    while not any(event["kind"] in ("round", "end") for event in read_lines(folder / "events.jsonl")):
        time.sleep(_PATIENCE)
    from cli.report import report  # noqa: PLC0415

    seen, ended = 0, False
    while not ended:
        if seen != (size := (folder / "events.jsonl").stat().st_size):
            ended = _ended(folder)
            report([folder], out, again=0 if ended else _PERIOD)
            seen = size
        if not ended:
            time.sleep(_PERIOD)


def _ended(folder: Path) -> bool:
    """Whether the newest start has come to an end that nobody goes on from by itself, and has left its summary."""
    events = [event for event in read_lines(folder / "events.jsonl") if event["kind"] in ("listening", "end")]
    over = bool(events) and events[-1]["kind"] == "end" and events[-1]["status"] != "interrupted"
    return over and (folder / "summary.json").exists()
