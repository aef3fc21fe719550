"""FedVS under its paper's delays: Figures 2, 3 and 4 of Li, Yao and Liu 2023 for Fashion-MNIST, on the virtual clock.

    python -m benchmarks.straggler_figures FOLDER [NAME ...]

28 parties, half of them stragglers (experiments/fedvs/stragglers.yaml, split_avg/stragglers.yaml). Plots validation
accuracy over the seconds of delays and bandwidth; computing takes none. Writes a picture a figure to FOLDER, and prints
each run's time to 80 %.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.report import console
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from colonnade_lab.pages.plots import as_file, coloured, lines

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SECONDS, TARGET = 400.0, 0.8  # of the virtual clock; accuracy
Points = list[tuple[float, float]]


def fedvs(segments: int, masks: int, rounds: int) -> tuple[str, ...]:
    code = f"segments: {segments}, masks: {masks}, masked_answers: false"
    protocol = f"federation.protocol={{name: fedvs, embedding: 32, {code}}}"
    return ("fedvs/stragglers.yaml", protocol, f"federation.rounds={rounds}")


_DP = "clip: 1, epsilon: 5, delta: 1.0e-5, evaluate: clean, adjacency: participation, accounting: renyi"
DP = f"federation.privacy={{{_DP}}}"
FIGURES: dict[str, dict[str, tuple[str, ...]]] = {
    "2": {
        "FedVS, K = 1": fedvs(1, 1, 600),
        "Wait": ("split_avg/stragglers.yaml", "federation.rounds=600"),
        "Ignore": ("split_avg/stragglers.yaml", "federation.quorum={deadline: 0.5}", "federation.rounds=700"),
        "VAFL": ("split_avg/stragglers.yaml", "federation.protocol.arrivals=true", "federation.rounds=2000"),
        "Wait-DP": ("split_avg/stragglers.yaml", "federation.rounds=600", DP, "federation.benchmark=true"),
    },
    "3": {
        f"K = {segments}": fedvs(segments, 1, rounds) for segments, rounds in ((1, 600), (2, 400), (6, 150), (12, 60))
    },
    "4": {f"T = {masks}": fedvs(4, masks, rounds) for masks, rounds in ((1, 400), (3, 400), (5, 250), (9, 60))},
}


class Curve:
    """Validation accuracy over time, from the events of a run.

    Attributes:
        points: (seconds, accuracy).
    """

    def __init__(self) -> None:
        self.points: Points = []
        self._now = 0.0

    def __call__(self, event: Event) -> None:
        """Records an evaluation at the time when its round ended, since Answers of evaluations are late too."""
        if event["kind"] == "round":
            self._now = event["time"]
        if event["kind"] == "evaluation" and event["part"] == "validation":
            self.points.append((self._now, event["val_accuracy"]))


def trace(file: str, *sets: str) -> Points:
    path = EXPERIMENTS / file
    rounds = load(path, sets).federation.rounds
    every = f"federation.evaluate={{every: {max(1, rounds // 25)}}}"
    curve = Curve()
    Simulation(load(path, (*sets, every)), base=path.parent, telemetry=Telemetry(None, curve)).run()
    return curve.points


def describe(name: str, points: Points) -> str:
    reached = next(
        (f"{seconds:.1f} s to 80 %" for seconds, accuracy in points if accuracy >= TARGET), "80 % not reached"
    )
    return f"{name}: {reached}, {points[-1][1]:.2%} after {points[-1][0]:.0f} s"


def main() -> None:
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or list(FIGURES)
    folder.mkdir(parents=True, exist_ok=True)
    for number in wanted:
        series: dict[str, Points] = {}
        for name, (file, *sets) in FIGURES[number].items():
            points = trace(file, *sets)
            console.print(f"figure {number}, {describe(name, points)}")
            series[name] = [point for point in points if point[0] <= SECONDS]
        picture = lines(coloured(series), lambda y: f"{y:.0%}", lambda x: f"{x:.0f} s", span=(0.0, 0.9))
        (folder / f"fedvs-figure-{number}.svg").write_text(as_file(picture), encoding="utf-8")
        (folder / f"fedvs-figure-{number}.json").write_text(json.dumps(series), encoding="utf-8")


if __name__ == "__main__":
    main()
