"""A party's step by two ranks of one thread each, against one process of one thread, and of all.

A step is forward, backward and the optimiser's step, of 1024 rows. Rank 0 is this process; the other is
`python -m benchmarks.ranks`, which computes until it is dismissed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import ROOT
from colonnade.client.ranks.backprop import RankedBackprop, dismiss, meet
from colonnade.client.ranks.group import FILE, World, joined
from colonnade.common.models.backprop import Backprop, backprop
from colonnade.common.models.build import bottom_model
from colonnade.common.models.optimiser import stepper
from colonnade.common.parsing.file import load
from colonnade.common.run.device import torch_threads
from colonnade.common.run.python_child import child_environment
from colonnade.launcher.ranks import party_ranks
from colonnade.testing.trial import digits

ROWS, WIDTH, PARTY = 1024, 64, "party1"
_AGAIN = 40  # tries, of which the least is reported


@dataclass(frozen=True)
class Tower:
    """A bottom model, the shape of its rows, and how many steps are measured."""

    what: str
    shape: tuple[int, ...]
    model: Mapping[str, object]
    steps: int


_MLP = {"name": "mlp", "embedding": WIDTH}
SMALL = Tower("50-128-64", (50,), {**_MLP, "hidden": 128}, steps=200)
WIDE = Tower("400-3072-64", (400,), {**_MLP, "hidden": 3072}, steps=20)
IMAGES = Tower("LeNet of 28 x 28 images", (1, 28, 28), {"name": "lenet", "embedding": WIDTH}, steps=10)


def main() -> list[Figure]:
    """Processor time that ranks add to a step, and how many more steps they make."""
    figures = []
    for tower in (SMALL, WIDE, IMAGES):
        (alone, ranked, threaded), (cpu_alone, cpu) = _measure(tower)
        added, rate = f"processor time that two ranks add to a step, {tower.what}", 1e3 / ranked
        steps, bound = f"steps a second by two ranks, {tower.what}", 1.6 if tower is IMAGES else None
        figures += [
            Figure(added, cpu - cpu_alone, 5.0 if tower is SMALL else None, "ms"),
            Figure(steps, rate, bound, "/s", 1e3 / alone, "one process, one thread", least=True),
            Figure(steps, rate, None, "/s", 1e3 / threaded, f"one process, {os.cpu_count()} threads"),
        ]
    return figures


def _measure(measured: Tower) -> tuple[list[float], list[float]]:
    """Milliseconds of a step: of one process, of two ranks, and of one process with all threads; then the processor
    time of one process and of both ranks together.
    """
    steps = measured.steps
    tree = digits({"name": "split", "embedding": WIDTH})
    tree["every_party"]["model"] = dict(measured.model)
    with tempfile.TemporaryDirectory() as name, torch_threads(1):
        file = Path(name) / "party.json"
        file.write_text(json.dumps(tree), encoding="utf-8")
        own = load(file).parties[PARTY]
        os.environ[FILE] = str(Path(name) / "group")
        environment = child_environment(RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", OMP_NUM_THREADS="1")
        argv = [sys.executable, "-m", "benchmarks.ranks", str(file)]
        with _other(argv, environment) as other, joined(World(0, 2, 2), PARTY, "", 600, _lost) as group:
            meet(group, own, Path(name))

            def tower() -> nn.Module:
                return bottom_model(
                    PARTY, own.model, measured.shape, WIDTH, torch.Generator().manual_seed(0), Path(name)
                )

            model, plain = tower(), tower()
            x, gradient = torch.randn(ROWS, *measured.shape), torch.randn(ROWS, WIDTH) / ROWS
            ranked = _step(RankedBackprop(PARTY, group, own, model, x), model, x, gradient)
            alone = _step(backprop(plain), plain, x, gradient)

            def threaded() -> None:
                with torch_threads(os.cpu_count() or 1):
                    alone()

            wall = [1e3 * median(each) for each in in_turn(alone, ranked, threaded, repeats=steps, warm=3)]
            cpu = [1e3 * _cpu(call, max(1, steps // 20), other.pid) for call in (alone, ranked)]
            dismiss(group)
        del os.environ[FILE]
    return wall, cpu


@contextmanager
def _other(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The other rank, which waits for this one for as long as it lives: an error here ends it."""
    with subprocess.Popen(argv, cwd=ROOT, env=environment) as other:
        try:
            yield other
        except BaseException:
            other.kill()
            raise


def _step(through: Backprop, model: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> Callable[[], None]:
    follow = stepper(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True))

    def step() -> None:
        through.forward(x)
        through.backward(gradient.clone())
        follow()

    return step


def _cpu(call: Callable[[], None], repeats: int, other: int) -> float:
    """Processor seconds of a call, of this process and the other; the least of many tries of so many calls each.

    Other work on the machine adds to them, through its caches and by interrupting messages.
    """

    def spent() -> int:
        threads = [thread for pid in (os.getpid(), other) for thread in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)

    found = []
    for _ in range(_AGAIN):
        before = spent()
        for _ in range(repeats):
            call()
        found.append((spent() - before) / 1e9 / repeats)
    return min(found)


def _lost(reason: str) -> NoReturn:
    raise RuntimeError(reason)


def work(file: Path) -> None:
    """The other rank."""
    torch.set_num_threads(1)
    config = load(file)
    with party_ranks(World.of_environment(), config.federation, PARTY, config.parties[PARTY], file.parent):
        pass


if __name__ == "__main__":
    work(Path(sys.argv[1]))
