"""Pictures of the documentation, of measured or computed curves: `python -m benchmarks.figures FOLDER [NAME ...]`.

Names are those of `FIGURES`, all by default. Each writes an SVG to FOLDER; runs are on the virtual clock.

`czofo-bytes`: accuracy against bytes, Figure 3(b) of VFL-CZOFO (Wang et al. 2023) for MNIST halves. Two parties,
batches of 64, embeddings of 64, a head with 128 hidden units; Adam everywhere except in `zoo_vfl`. Test accuracy over
the tensor bytes of training, both ways and of all parties; evaluations do not count. Names say bits up / down. Prints
the bytes to 90, 95 and 97 %.

`epsilon-person`: accuracy against the epsilon of a person with a row at every party, on MNIST. It draws measured
numbers of the protocols' pages; epsilons of persons are computed here from a party's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.report import console
from benchmarks.runs import ROOT
from colonnade.common.config.compression import form_of
from colonnade.common.config.members import Config
from colonnade.common.messaging.forms import AS_IS, Form
from colonnade.common.observability.telemetry import Event, Listener, Telemetry
from colonnade.common.parsing.file import load
from colonnade.common.privacy.accounting.accountant import epsilon, find_noise_multiplier
from colonnade.common.protocols.czofo import Config as Czofo
from colonnade.simulation.federation import Simulation
from colonnade_lab.pages.plots import as_file, coloured, lines

Points = list[tuple[float, float]]

ROWS, WIDTH, TURNS = 64, 64, 2  # rows of a batch; width of an embedding; turns a round
TARGETS = (0.9, 0.95, 0.97)
LEAST = 0.1  # MB, start of the logarithmic axis
ADAM = ("server.optimiser={name: adam, lr: 0.001}", "every_party.optimiser={name: adam, lr: 0.001}")
SERIES: Mapping[str, tuple[str, ...]] = {
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


def bytes_figure(folder: Path) -> None:
    every = ("federation.evaluate={every: 117, test: always}", "federation.rows={validation: 0, test: official}")
    series: dict[str, Points] = {}
    for name, (file, *sets) in SERIES.items():
        points: Points = []
        round_bytes = megabytes(_load(file, *sets, *every))

        def listen(event: Event, points: Points = points, round_bytes: float = round_bytes) -> None:
            if event["kind"] == "evaluation":
                points.append((event["round"] * round_bytes, event["test_accuracy"]))

        _simulate(listen, file, *sets, *every)
        reached = [next((f"{x:.1f} MB" for x, y in points if y >= target), "never") for target in TARGETS]
        console.print(
            f"{name}: 90, 95, 97 % after {', '.join(reached)}; {points[-1][1]:.2%} after {points[-1][0]:.0f} MB"
        )
        series[name] = [(math.log10(x / LEAST), y) for x, y in points]
    picture = lines(
        coloured(series), lambda y: f"{y:.0%}", lambda x: f"{round(LEAST * 10**x, 1):g} MB", span=(0.85, 1.0)
    )
    (folder / "czofo-bytes.svg").write_text(as_file(picture), encoding="utf-8")


DELTA = 1e-5  # of the Gaussian mechanisms; codes have 1e-6
FIRST = 4.0  # start of the logarithmic axis
CODES = {7.999: 0.843, 11.999: 0.926, 16.0: 0.950}
"""A person's epsilon -> test accuracy of `codes`, MNIST halves: docs/protocols/codes.md, means of seeds 0 to 2."""
SPLIT = {20: 0.810, 50: 0.947, 150: 0.963}
"""A party's epsilon -> `split`, two parties, positive_sphere, one epoch: docs/protocols/vfl_afe.md."""
ONCE, EACH = {8: 0.601}, {8: 0.259}
"""Likewise `split_avg`, 14 parties, with noise once and with noise from each party: docs/protocols/split_avg.md."""


def person(party: float, releases: int) -> float:
    """Epsilon of a person with so many Gaussian releases, of epsilon `party` each.

    That is one a party; with noise once, every release counts for as many as there are parties in the sum.
    """
    return epsilon(releases, find_noise_multiplier(party, DELTA, 1, "row"), DELTA, "row")


def epsilon_figure(folder: Path) -> None:
    series = {
        "codes, 2 parties": CODES,
        "split, noise on embeddings,\n2 parties, 1 epoch *": {person(each, 2): found for each, found in SPLIT.items()},
        "split_avg, noise once,\n14 parties *": {person(each, 14**2): found for each, found in ONCE.items()},
        "split_avg, noise of each,\n14 parties *": {person(each, 14): found for each, found in EACH.items()},
    }
    points = {name: [(math.log2(x / FIRST), y) for x, y in found.items()] for name, found in series.items()}
    picture = lines(
        coloured(points), lambda y: f"{y:.0%}", lambda x: f"{FIRST * 2**x:g}", span=(0.0, 1.0),
        foot="epsilon of a person with a row at every party (logarithmic)",
        title="Test accuracy on MNIST against a person's epsilon, by mechanism",
    )  # fmt: skip
    (folder / "epsilon-person.svg").write_text(as_file(picture), encoding="utf-8")


def _load(file: str, *sets: str) -> Config:
    return load(ROOT / "experiments" / file, sets)


def _simulate(listen: Listener, file: str, *sets: str) -> None:
    base = (ROOT / "experiments" / file).parent
    Simulation(_load(file, *sets), base=base, telemetry=Telemetry(None, listen)).run()


FIGURES: Mapping[str, Callable[[Path], None]] = {"czofo-bytes": bytes_figure, "epsilon-person": epsilon_figure}


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or FIGURES:
        FIGURES[name](into)
