"""An animation of a run: messages between the members by epoch, and the growing accuracy, as one SVG file.

    colonnade up experiments/split/demo.yaml --out RUN
    python -m benchmarks.moving_picture RUN docs/figures/run.svg

All numbers are from the run's events. Only CSS animates the picture; where nothing moves (a printer, or a reader who
prefers reduced motion), it shows the end of the run.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

SLOT, REST = 0.7, 3.5  # seconds of an epoch, and of the end
WIDTH, HEIGHT = 860, 330
SERVER = (215, 262)  # centre of the server's box
PLOT = (490, 56, 340, 200)  # left, top, width, height
CARRIED = {"split": ("embeddings", "gradients"), "vimadmm": ("embeddings", "duals, residuals, heads")}

STYLE = """
svg{font:13px ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;--bg:#fff;--ink:#1f2933;--soft:#5b6772;
--line:#c6ced6;--box:#eef2f6;--up:#1f6feb;--down:#b35900;--curve:#0a7d50}
@media (prefers-color-scheme:dark){svg{--bg:#161b22;--ink:#e6edf3;--soft:#9aa6b2;--line:#3a444f;--box:#222a33;
--up:#6cb0ff;--down:#f0a35e;--curve:#4cc38a}}
.bg{fill:var(--bg);stroke:var(--line)}.box{fill:var(--box);stroke:var(--line)}.t{fill:var(--ink)}
.b{font-weight:600}.s{fill:var(--soft);font-size:12px}.m{text-anchor:middle}.e{text-anchor:end}
.wire,.grid{stroke:var(--line);fill:none}.seg{stroke:var(--curve);stroke-width:2.5;stroke-linecap:round}
.pt{fill:var(--curve)}.u{fill:var(--up)}.d{fill:var(--down)}.f{opacity:0}.f.last{opacity:1}
"""


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
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
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
    test = summary["metrics"]["test_accuracy"]
    protocol, dataset = summary["protocol"], summary["dataset"]
    return Recorded(protocol, dataset, tuple(begin["parties"]), begin["rounds"], tuple(frames), test)


def draw(run: Recorded) -> str:
    total = SLOT * len(run.frames) + REST
    body = [_members(run), _dots(run), _plot(run), *_frames(run)]
    style = STYLE + _motion(run, total)
    said = (
        f"A run of {run.protocol} on {run.dataset}: {len(run.parties)} parties and a server, {run.rounds} rounds, "
        f"test accuracy {run.test:.2%}."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">',
            f"<title>{said}</title>",
            f"<style>{style}</style>",
            f'<rect class="bg" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
            *body,
            "</svg>\n",
        ]
    )


def _places(run: Recorded) -> list[tuple[float, float]]:
    step = 400 / len(run.parties)
    return [(15 + step * (index + 0.5), 74) for index in range(len(run.parties))]


def _members(run: Recorded) -> str:
    lines = []
    for x, y in _places(run):
        lines.append(f'<path class="wire" d="M{x:.0f} {y + 24}L{SERVER[0]} {SERVER[1] - 24}"/>')
    half = min(46, 190 / len(run.parties))
    for (x, y), name in zip(_places(run), run.parties, strict=True):
        lines.append(f'<rect class="box" x="{x - half:.0f}" y="{y - 24}" width="{2 * half:.0f}" height="48" rx="6"/>')
        lines.append(f'<text class="t b m" x="{x:.0f}" y="{y - 3}">{escape(name)}</text>')
        lines.append(f'<text class="s m" x="{x:.0f}" y="{y + 14}">columns</text>')
    x, y = SERVER
    lines.append(f'<rect class="box" x="{x - 60}" y="{y - 24}" width="120" height="48" rx="6"/>')
    lines.append(f'<text class="t b m" x="{x}" y="{y - 3}">server</text>')
    lines.append(f'<text class="s m" x="{x}" y="{y + 14}">labels</text>')
    up, down = CARRIED.get(run.protocol, ("messages", "messages"))
    lines.append(f'<circle class="u" cx="24" cy="24" r="5"/><text class="t" x="36" y="28">{up} to the server</text>')
    lines.append('<circle class="d" cx="216" cy="24" r="5"/>')
    lines.append(f'<text class="t" x="228" y="28">{down} to the parties</text>')
    return "\n".join(lines)


def _dots(run: Recorded) -> str:
    """One dot per party and direction; without motion they rest on the lines."""
    lines = ['<g class="dots">']
    for index, (x, y) in enumerate(_places(run)):
        for kind, share in (("u", 0.36), ("d", 0.64)):
            here = (x + share * (SERVER[0] - x), y + 24 + share * (SERVER[1] - y - 48))
            lines.append(f'<circle class="{kind} {kind}{index}" cx="{here[0]:.1f}" cy="{here[1]:.1f}" r="5"/>')
    return "\n".join([*lines, "</g>"])


def _point(run: Recorded, frame: Frame) -> tuple[float, float]:
    left, top, width, height = PLOT
    return left + width * frame.round / run.rounds, top + height * (1 - frame.accuracy)


def _plot(run: Recorded) -> str:
    left, top, width, height = PLOT
    lines = [f'<text class="t b" x="{left}" y="28">validation accuracy by round</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = top + height * (1 - share)
        lines.append(f'<path class="grid" d="M{left} {y:.0f}h{width}"/>')
        lines.append(f'<text class="s e" x="{left - 6}" y="{y + 4:.0f}">{share:.0%}</text>')
    for number in (0, run.rounds // 2, run.rounds):
        x = left + width * number / run.rounds
        lines.append(f'<text class="s m" x="{x:.0f}" y="{top + height + 18}">{number}</text>')
    return "\n".join(lines)


def _frames(run: Recorded) -> list[str]:
    lines = []
    for index, frame in enumerate(run.frames):
        x, y = _point(run, frame)
        if index:
            before = _point(run, run.frames[index - 1])
            lines.append(f'<path class="seg g{index}" d="M{before[0]:.1f} {before[1]:.1f}L{x:.1f} {y:.1f}"/>')
        lines.append(f'<circle class="pt g{index}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        last = " last" if index == len(run.frames) - 1 else ""
        test = f" · test {run.test:.2%}" if last else ""
        said = f"round {frame.round} of {run.rounds} · validation {frame.accuracy:.1%}{test}"
        sent = f"{frame.up:.1f} MB up, {frame.down:.1f} MB down"
        lines.append(
            f'<g class="f f{index}{last}"><text class="t e" x="{PLOT[0] + PLOT[2]}" y="308">{said}</text>'
            f'<text class="s m" x="{SERVER[0]}" y="308">{sent}</text></g>'
        )
    return lines


def _motion(run: Recorded, total: float) -> str:
    """The rules for readers who do not prefer reduced motion."""
    rules = []
    for index, (x, y) in enumerate(_places(run)):
        way = (SERVER[0] - x, SERVER[1] - y - 48)
        for kind, share, begin, end in (("u", 0.36, 0.02, 0.46), ("d", 0.64, 0.54, 0.98)):
            ends = [(-share * way[0], -share * way[1]), ((1 - share) * way[0], (1 - share) * way[1])]
            first, second = ends if kind == "u" else reversed(ends)
            rules.append(
                f"@keyframes {kind}{index}{{0%,{begin:.0%}{{transform:translate({first[0]:.1f}px,{first[1]:.1f}px);"
                f"opacity:0}}{begin + 0.02:.0%}{{opacity:1}}{end - 0.02:.0%}{{opacity:1}}{end:.0%},100%"
                f"{{transform:translate({second[0]:.1f}px,{second[1]:.1f}px);opacity:0}}}}"
                f".{kind}{index}{{animation:{kind}{index} {SLOT}s linear infinite}}"
            )
    busy = 100 * SLOT * len(run.frames) / total
    rules.append(f"@keyframes work{{0%,{busy:.2f}%{{opacity:1}}{busy + 0.01:.2f}%,100%{{opacity:0}}}}")
    rules.append(f".dots{{animation:work {total}s linear infinite}}")
    for index in range(len(run.frames)):
        begin, end = 100 * SLOT * (index + 0.5) / total, 100 * SLOT * (index + 1.5) / total
        until = f"{end:.2f}%{{opacity:1}}{end + 0.01:.2f}%,100%{{opacity:0}}" if index < len(run.frames) - 1 else ""
        rules.append(f"@keyframes f{index}{{0%,{begin:.2f}%{{opacity:0}}{begin + 0.01:.2f}%{{opacity:1}}{until}}}")
        rules.append(f"@keyframes g{index}{{0%,{begin:.2f}%{{opacity:0}}{begin + 0.01:.2f}%,100%{{opacity:1}}}}")
        rules.append(f".f{index}{{animation:f{index} {total}s linear infinite}}")
        rules.append(f".g{index}{{animation:g{index} {total}s linear infinite}}")
    return "@media (prefers-reduced-motion:no-preference){\n" + "\n".join(rules) + "\n}\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(read(Path(sys.argv[1]))), encoding="utf-8")
