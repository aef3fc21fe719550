"""Growth of a round with parties, batch, embeddings, hidden layers and FedVS's K.

    python -m benchmarks.scaling FOLDER

Whole federations on the virtual clock, in this process and on one thread, on columns of noise, with the real sides but
no wire. Seconds are processor time, which other load affects least. Every point is compared with a floor measured right
after it: the same forward and backward passes and steps of all parties with autograd, without messages, checks or a
ledger. The parties share 800 columns, so that models of many parties are narrow. The number of training rows is a power
of two, so that batch sizes that are powers of two divide it.

`main` measures the ends of every curve. The command writes a picture a curve to FOLDER, `scaling-*.svg`, and prints
tables.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import nn

from benchmarks.communication import training_bytes
from benchmarks.floors import joint_step, local_steps
from benchmarks.report import Figure, console, grid, in_turn, median
from colonnade.common.config.members import Config
from colonnade.common.config.models import MlpConfig, PolynomialConfig
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.models.build import tower
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import parse
from colonnade.simulation.federation import Simulation
from colonnade_lab.pages.plots import as_file, colour, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


TRAINING, TEST, COLUMNS, CLASSES = 8192, 256, 800, 10
TAU = 5  # local steps of a VIMADMM round


@dataclass(frozen=True)
class Setting:
    """One point of a curve.

    Args:
        protocol: split, vimadmm or fedvs.
        hidden: width of a bottom model's first layer; FedVS's polynomials have none.
    """

    protocol: str
    parties: int = 4
    batch: int = 256
    width: int = 64
    hidden: int = 128
    segments: int = 1

    def config(self, rounds: int) -> Config:
        """A federation of `rounds` rounds over the files that `write` leaves; it is evaluated once, at its end."""
        return parse(self.tree(rounds))

    def tree(self, rounds: int) -> dict[str, Any]:
        more = {"vimadmm": {"tau": TAU}, "fedvs": {"segments": self.segments, "masks": 1, "masked_answers": False}}
        polynomial, mlp = {"name": "polynomial", "layers": 1}, {"name": "mlp", "hidden": self.hidden}
        return {
            "federation": {
                "id": "scaling", "parties": self.parties, "classes": CLASSES, "rounds": rounds, "batch": self.batch,
                "protocol": {"name": self.protocol, "embedding": self.width, **more.get(self.protocol, {})},
                "rows": {"validation": 0, "test": TEST}, "evaluate": {"every": rounds}, "seed": 0,
            },
            "server": {"labels": {"source": "safetensors", "path": "labels.safetensors"}},
            "every_party": {
                "data": {"source": "safetensors", "path": "columns.safetensors", "split": "columns", "scale": "unit"},
                "model": polynomial if self.protocol == "fedvs" else mlp,
            },
        }  # fmt: skip

    def shares(self) -> list[int]:
        size, longer = divmod(COLUMNS, self.parties)
        return [size + (index < longer) for index in range(self.parties)]


def write(folder: Path, training: int = TRAINING) -> None:
    """Writes columns.safetensors, bytes, and labels.safetensors, classes, with `training` training rows."""
    draws = torch.Generator().manual_seed(0)
    rows = training + TEST
    values = torch.randint(256, (rows, COLUMNS), generator=draws, dtype=torch.uint8)
    save_file({"values": values}, folder / "columns.safetensors")
    save_file({"values": torch.arange(rows) % CLASSES}, folder / "labels.safetensors")


ROUNDS, WARM = 6, 2  # rounds, and how many of the first are excluded
FLOOR = "passes and steps without messages"


@dataclass(frozen=True)
class Sweep:
    key: str
    what: str
    values: Sequence[int]
    protocols: Sequence[str] = ("split", "vimadmm")
    base: Setting = field(default_factory=lambda: Setting("split"))

    def settings(self) -> list[Setting]:
        return [replace(self.base, protocol=p, **{self.key: value}) for p in self.protocols for value in self.values]


SWEEPS = (
    Sweep("parties", "parties", (2, 4, 8, 16, 32, 64, 100)),
    Sweep("batch", "rows of a batch", (64, 256, 1024, 4096, 8192)),
    Sweep("width", "width of an embedding", (8, 32, 128, 512)),
    Sweep("hidden", "hidden units", (16, 64, 256, 1024, 2048)),
    Sweep("segments", "K, segments", (1, 2, 4, 7), ("fedvs",), Setting("fedvs", parties=16)),
)


@dataclass(frozen=True)
class Point:
    """Measurements of one setting.

    Args:
        seconds, floor: processor time of a round.
        megabytes: of tensors, both ways and of all parties, a round.
    """

    setting: Setting
    seconds: float
    floor: float
    megabytes: float


def main() -> list[Figure]:
    """The first and the last point of every curve, without bounds."""
    return [
        Figure(
            f"{point.setting.protocol} round, {sweep.what}: {getattr(point.setting, sweep.key)}",
            1e3 * point.seconds, None, "ms", 1e3 * point.floor, FLOOR,
        )
        for sweep in SWEEPS
        for point in measure(sweep, ends=True)
    ]  # fmt: skip


def measure(sweep: Sweep, *, ends: bool = False) -> list[Point]:
    torch.set_num_threads(1)
    wanted = (sweep.values[0], sweep.values[-1])
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        settings = [each for each in sweep.settings() if not ends or getattr(each, sweep.key) in wanted]
        return [point_of(setting, Path(scratch)) for setting in settings]


def point_of(setting: Setting, folder: Path) -> Point:
    """Runs one setting over the files in a folder, and its floor."""
    cohorts: list[Cohort] = []
    samples: list[tuple[float, int]] = []

    def hear(event: Event) -> None:
        if event["kind"] == "round":
            samples.append((time.process_time(), training_bytes(cohorts[0])))

    Simulation(setting.config(ROUNDS), folder, telemetry=Telemetry(None, hear), on_cohort=cohorts.append).run()
    steady = list(pairwise(samples[WARM - 1 :]))
    seconds = median([after[0] - before[0] for before, after in steady])
    return Point(setting, seconds, floor(setting), median([after[1] - before[1] for before, after in steady]) / 1e6)


def floor(setting: Setting) -> float:
    """Processor seconds of a round's passes and steps without messages."""
    fedvs, rows = setting.protocol == "fedvs", setting.batch
    model = MlpConfig(hidden=setting.hidden, embedding=setting.width)
    kind = PolynomialConfig(layers=1, embedding=setting.width) if fedvs else model
    bottoms = [tower(kind, (columns,)) for columns in setting.shares()]
    parts = [torch.rand(rows, columns) for columns in setting.shares()]
    if setting.protocol == "vimadmm":
        each = [torch.optim.SGD(bottom.parameters(), lr=0.01, momentum=0.9) for bottom in bottoms]
        link = torch.randn(setting.width, CLASSES) * 0.1
        call: Callable[[], object] = partial(local_steps, bottoms, each, parts, link, TAU)
    else:
        head = nn.Linear(setting.width * (1 if fedvs else setting.parties), CLASSES, bias=False)
        step = torch.optim.SGD([p for m in (*bottoms, head) for p in m.parameters()], lr=0.01, momentum=0.9)
        y = torch.randint(CLASSES, (rows,))
        call = partial(joint_step(bottoms, head, [step], averaged=fedvs), parts, y)
    return median(in_turn(call, clock=time.process_time, repeats=ROUNDS - WARM, warm=WARM)[0])


def table(sweep: Sweep, points: Sequence[Point]) -> str:
    lines = []
    for point in points:
        ours, bare = 1e3 * point.seconds, 1e3 * point.floor
        where = (point.setting.protocol, getattr(point.setting, sweep.key))
        lines.append((*where, f"{ours:.3g}", f"{bare:.3g}", f"{ours / bare:.2f}", f"{point.megabytes:.3g}"))
    return grid(("protocol", sweep.what, "ms a round", "floor, ms", "ratio", "MB a round"), lines)


def sketch(sweep: Sweep, points: Sequence[Point]) -> str:
    """The points and their floors, dashed, on logarithmic axes."""

    def paint(figure: Canvas) -> None:
        axes = figure.subplots()
        for number, protocol in enumerate(sweep.protocols):
            own = [point for point in points if point.setting.protocol == protocol]
            across = [getattr(point.setting, sweep.key) for point in own]
            shown = {"color": colour(number), "marker": "o", "markersize": 4}
            axes.plot(across, [1e3 * point.seconds for point in own], label=protocol, **shown)
            axes.plot(across, [1e3 * point.floor for point in own], "--", label=f"{protocol}, floor", **shown)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_xticks(sweep.values, map(str, sweep.values))
        axes.set_xlabel(sweep.what)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g} ms")
        axes.grid(axis="y")
        figure.legend(loc="outside right upper")

    return picture((680, 360), paint)


if __name__ == "__main__":
    (folder := Path(sys.argv[1])).mkdir(parents=True, exist_ok=True)
    for sweep in SWEEPS:
        points = measure(sweep)
        console.print(table(sweep, points), markup=False, soft_wrap=True)
        (folder / f"scaling-{sweep.key}.svg").write_text(as_file(sketch(sweep, points)), encoding="utf-8")
