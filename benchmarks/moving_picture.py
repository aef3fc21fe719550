"""An animation of a run: messages between the members by epoch, and the growing accuracy, as one SVG file.

    colonnade up experiments/split/demo.yaml --out RUN
    python -m benchmarks.moving_picture RUN docs/figures/run.svg

All numbers are from the run's events. Only CSS animates the picture; where nothing moves (a printer, or a reader who
prefers reduced motion), it shows the end of the run. moving_picture.svg is its template.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from colonnade.common.run.json_text import read_lines

SLOT, REST = 0.7, 3.5  # seconds of an epoch, and of the end
SERVER, PARTY = (215, 262), 74  # centre of the server's box, and height of the parties'
PLOT = {"left": 490, "bottom": 256, "width": 340}  # 200 pixels high
CARRIED = {"split": ("embeddings", "gradients"), "vimadmm": ("embeddings", "duals, residuals, heads")}


@dataclass(frozen=True)
class Frame:
    """A run after an evaluation: round, share of validation rows that are right, and megabytes so far."""

    round: int
    accuracy: float
    up: float
    down: float


@dataclass(frozen=True)
class Recorded:
    protocol: str
    dataset: str
    parties: tuple[str, ...]
    rounds: int
    frames: tuple[Frame, ...]
    test: float


def read(run: Path) -> Recorded:
    events = list(read_lines(run / "events.jsonl"))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    begin = next(event for event in events if event["kind"] == "begin")
    last: dict[str, Any] = {}
    frames = []
    for event in events:
        if event["kind"] == "round":
            last = event
        elif event["kind"] == "evaluation" and event["part"] == "validation":
            sent = (last["bytes_up"] / 1e6, last["bytes_down"] / 1e6)
            frames.append(Frame(event["round"], event["val_accuracy"], *sent))
    test, parties = summary["metrics"]["test_accuracy"], tuple(begin["parties"])
    return Recorded(summary["protocol"], summary["dataset"], parties, begin["rounds"], tuple(frames), test)


def draw(run: Recorded) -> str:
    step, total = 400 / len(run.parties), SLOT * len(run.frames) + REST
    across = [round(15 + step * (index + 0.5)) for index in range(len(run.parties))]
    template = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(
        Path(__file__).with_suffix(".svg").read_text(encoding="utf-8")
    )
    said = (
        f"A run of {run.protocol} on {run.dataset}: {len(run.parties)} parties and a server, {run.rounds} rounds, "
        f"test accuracy {run.test:.2%}."
    )
    return template.render(
        run=run, said=said, test=f"{run.test:.2%}", across=across, half=round(min(46, 190 / len(run.parties))),
        width=860, height=330, server=SERVER, party=PARTY, plot=PLOT, slot=SLOT, total=round(total, 1),
        busy=round(100 * SLOT * len(run.frames) / total, 2), dots=list(_dots(across)), frames=list(_frames(run, total)),
        carried=CARRIED.get(run.protocol, ("messages", "messages")),
    )  # fmt: skip


def _dots(across: list[int]) -> Iterator[dict[str, Any]]:
    """One dot per party and direction; without motion they rest on the lines."""
    for index, x in enumerate(across):
        way = (SERVER[0] - x, SERVER[1] - PARTY - 48)
        for kind, share, begin, end in (("u", 0.36, 2, 46), ("d", 0.64, 54, 98)):
            ends = [f"{moved * way[0]:.1f}px,{moved * way[1]:.1f}px" for moved in (-share, 1 - share)]
            first, last = ends if kind == "u" else reversed(ends)
            yield {
                "name": f"{kind}{index}", "x": round(x + share * way[0], 1), "y": round(PARTY + 24 + share * way[1], 1),
                "begin": begin, "end": end, "first": first, "last": last,
            }  # fmt: skip


def _frames(run: Recorded, total: float) -> Iterator[dict[str, Any]]:
    for index, frame in enumerate(run.frames):
        yield {
            "x": round(PLOT["left"] + PLOT["width"] * frame.round / run.rounds, 1),
            "y": round(PLOT["bottom"] - 200 * frame.accuracy, 1),
            "begin": round(100 * SLOT * (index + 0.5) / total, 2), "end": round(100 * SLOT * (index + 1.5) / total, 2),
            "said": f"round {frame.round} of {run.rounds} · validation {frame.accuracy:.1%}",
            "sent": f"{frame.up:.1f} MB up, {frame.down:.1f} MB down",
        }  # fmt: skip


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(read(Path(sys.argv[1]))), encoding="utf-8")
