"""Accuracy against bytes: Figure 3(b) of VFL-CZOFO (Wang et al. 2023) for MNIST halves, on the virtual clock.

    python -m benchmarks.bytes_figure FOLDER

Two parties, batches of 64, embeddings of 64, a head with 128 hidden units; Adam everywhere except in `zoo_vfl`. Plots
test accuracy over the tensor bytes of training, both ways and of all parties; evaluations do not count. Names say bits
up / down. Writes `czofo-bytes.svg` to FOLDER, and prints the bytes to 90, 95 and 97 %.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from benchmarks.report import console
from colonnade.common.config.compression import form_of
from colonnade.common.config.members import Config
from colonnade.common.messaging.forms import AS_IS, Form
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.common.protocols.czofo import Config as Czofo
from colonnade.simulation.federation import Simulation
from colonnade_lab.pages.plots import as_file, coloured, lines

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
ROWS, WIDTH, TURNS = 64, 64, 2  # rows of a batch; width of an embedding; turns a round
TARGETS = (0.9, 0.95, 0.97)
LEAST = 0.1  # MB, start of the logarithmic axis
ADAM = ("server.optimiser={name: adam, lr: 0.001}", "every_party.optimiser={name: adam, lr: 0.001}")
Points = list[tuple[float, float]]

SERIES: dict[str, tuple[str, ...]] = {
    "row, q 16, 3/4 bits": ("czofo/mnist_row.yaml", "federation.epochs=10"),
    "batch, q 100, 4/2 bits": (
        "czofo/mnist.yaml", "federation.epochs=4", "federation.compress={up: 4, down: 2, evaluate: 8}", *ADAM
    ),
    "batch, q 100": ("czofo/mnist.yaml", "federation.epochs=4", *ADAM),
    "vafl": ("vafl/mnist_halves.yaml", "federation.epochs=4", *ADAM),
    "zoo_vfl": ("zoo_vfl/mnist.yaml", "federation.epochs=4"),
}  # fmt: skip


def megabytes(config: Config) -> float:
    """Traffic of a round, in 10^6 bytes of tensors."""
    protocol, compress = config.federation.protocol, config.federation.compress
    shapes = {"vafl": (ROWS, WIDTH), "zoo_vfl": (1,)}
    down = shapes.get(protocol.name, (1, 1))
    if isinstance(protocol, Czofo):
        down = (ROWS if protocol.delta == "row" else 1, protocol.directions)
    up = _size(form_of(compress.up), (ROWS, WIDTH)) * (2 if protocol.name == "zoo_vfl" else 1)
    return TURNS * (up + _size(form_of(compress.down), down)) / 1e6


def _size(form: Form, shape: tuple[int, ...]) -> int:
    return 4 * math.prod(shape) if form == AS_IS else form.size(shape)


def trace(file: str, *sets: str) -> Points:
    path, points = EXPERIMENTS / file, []
    every = ("federation.evaluate={every: 117, test: always}", "federation.rows={validation: 0, test: official}")
    config = load(path, (*sets, *every))

    def listen(event: Event) -> None:
        if event["kind"] == "evaluation":
            points.append((event["round"] * megabytes(config), event["test_accuracy"]))

    Simulation(config, base=path.parent, telemetry=Telemetry(None, listen)).run()
    return points


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    series: dict[str, Points] = {}
    for name, (file, *sets) in SERIES.items():
        points = trace(file, *sets)
        reached = [next((f"{x:.1f} MB" for x, y in points if y >= target), "never") for target in TARGETS]
        console.print(
            f"{name}: 90, 95, 97 % after {', '.join(reached)}; {points[-1][1]:.2%} after {points[-1][0]:.0f} MB"
        )
        series[name] = [(math.log10(x / LEAST), y) for x, y in points]
    picture = lines(
        coloured(series), lambda y: f"{y:.0%}", lambda x: f"{round(LEAST * 10**x, 1):g} MB", span=(0.85, 1.0)
    )
    (folder / "czofo-bytes.svg").write_text(as_file(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
