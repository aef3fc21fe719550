"""Everything that needs a GPU, in twenty minutes: `python -m benchmarks.gpu`.

The suite's device tests; every protocol's demo on the GPU against the CPU; four members on one GPU; an epoch of VIMADMM
on MNIST and split learning with ResNet-18 and ResNet-50 on CIFAR-10, each against the same training in one process on
the same device. Missing data sets are replaced by noise of the same size, which takes the same time.

`--write` puts the table into docs/results/performance.md. `--device cpu --short` rehearses without a GPU; its figures
mean nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.__main__ import Benchmark, told
from benchmarks.__main__ import run as run_benchmark
from benchmarks.epoch import PARTIES, ROWS, TAU, bottom
from benchmarks.floors import joint_step, local_steps
from benchmarks.report import Figure, Result, describe, in_turn, markdown, median, show
from benchmarks.runs import ROOT, Run, run
from colonnade.common.config.models import ResnetConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.data.known_sets.catalogue import KNOWN, VARIABLE, presence
from colonnade.common.models.build import build_model

BATCH, WIDTH, HALF = 128, 64, (3, 32, 16)
_WARM_STEPS = 5  # steps excluded from times


def vimadmm_steps(device: torch.device, batches: int) -> float:
    """Seconds of the local steps of `batches` VIMADMM rounds, all 14 parties one after the other."""
    models = [bottom().to(device) for _ in range(PARTIES)]
    steps = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3, fused=True) for m in models]
    head = torch.randn(60, 10, device=device) * 0.1

    def rounds(of: list[int]) -> None:
        for rows in of:
            local_steps(models, steps, [torch.randn(rows, 56, device=device)] * PARTIES, head, TAU)
        _wait(device)

    rounds(ROWS[:1])
    return in_turn(partial(rounds, ROWS[:batches]), repeats=1)[0][0]


def resnet_step(device: torch.device, name: str, steps: int) -> float:
    """Median seconds of a step of split learning between two residual networks and a linear head."""
    config = ResnetConfig(name=name, embedding=WIDTH)
    bottoms = [build_model(config, HALF, torch.Generator().manual_seed(seed)).to(device) for seed in (1, 2)]
    head = nn.Linear(2 * WIDTH, 10).to(device)
    parameters = [p for module in (*bottoms, head) for p in module.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True)
    x, y = torch.randn(2, BATCH, *HALF, device=device).unbind(), torch.randint(10, (BATCH,), device=device)
    step = joint_step(bottoms, head, [optimiser])

    def once() -> None:
        step(x, y)
        _wait(device)

    return median(in_turn(once, repeats=steps, warm=_WARM_STEPS)[0])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_DRAWS = np.random.default_rng(0)


def write_noise(folder: Path) -> None:
    """Writes mnist/ (60,000 and 10,000 images) and cifar10/ (10,000 each), and names the folder in the environment."""
    for name, rows in (("train", 60_000), ("t10k", 10_000)):
        _idx(folder / "mnist" / f"{name}-images-idx3-ubyte", _DRAWS.integers(256, size=(rows, 28, 28), dtype=np.uint8))
        _idx(folder / "mnist" / f"{name}-labels-idx1-ubyte", _DRAWS.integers(10, size=rows, dtype=np.uint8))
    for name in ("data_batch_1", "test_batch"):
        rows = _DRAWS.integers(256, size=(10_000, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        path = folder / "cifar10" / f"{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rows.tobytes())
    os.environ[VARIABLE] = str(folder)


def _idx(path: Path, values: np.ndarray) -> None:
    """The magic number (unsigned bytes, number of dimensions), the sizes, the values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = np.array(values.shape, dtype=">u4").tobytes()
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes())


PAGE = ROOT / "docs" / "results" / "performance.md"
TABLE = re.compile(r"(?<=<!-- gpu table -->\n).*?(?=<!-- end of gpu table -->)", re.DOTALL)
_FIRST = 5  # rounds whose losses are compared, before rounding errors have grown
_AT_ONCE = 4  # demos
_WARM = 10  # rounds excluded from times


@dataclass(frozen=True)
class Plan:
    device: str
    short: bool = False

    @property
    def everybody(self) -> tuple[str, str]:
        return f"server.device={self.device}", f"every_party.device={self.device}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all parts and prints one table. Returns 1 if a part failed or a bound is broken, else 0."""
    options = _options(argv)
    plan = Plan(options.device, options.short)
    parts: dict[str, Callable[[Plan], list[Figure]]] = {
        "one GPU": shared, "epoch": epoch, "resnet18": partial(resnet, "resnet18"),
        "resnet50": partial(resnet, "resnet50"), "demos": demos, "device tests": suite,
    }  # fmt: skip
    results: dict[str, Result] = {}
    where = f"{_name_of(plan.device)}; {describe()}"
    with tempfile.TemporaryDirectory() as scratch:
        if any(presence(name, KNOWN[name]) is None for name in ("mnist", "cifar10")):
            told.print("MNIST or CIFAR-10 is not here: noise of their size is measured", style="yellow")
            write_noise(Path(scratch))
        for name, part in parts.items():
            told.print(f"{name} ...", style="dim")
            results[name] = run_benchmark(Benchmark(partial(part, plan), 4))
            if options.write:  # after every part: a machine lent by the minute can end before the last
                page = PAGE.read_text(encoding="utf-8")
                PAGE.write_text(TABLE.sub(lambda _: f"\n{markdown(results, where)}\n\n", page), encoding="utf-8")
    show(results, where)
    return 0 if all(result.holds for result in results.values()) else 1


def suite(plan: Plan) -> list[Figure]:
    """The tests of devices, including the one that needs a GPU."""
    argv = [sys.executable, "-m", "pytest", "-q", "tests/protocols/test_devices.py", "-o", "timeout=600"]
    argv += ["-k", "refuses"] if plan.short else []
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    told.print(ended.stdout[-2000:], markup=False)
    return [Figure("exit code of the device tests", ended.returncode, 0, "")]


def demos(plan: Plan) -> list[Figure]:
    """Each twice on the CPU and once on the device: initial losses within a thousandth, accuracy within two points.

    A run whose repetition on the CPU differs (asynchronous, or with noise from the system's randomness) has no bound.
    """
    names = list(CONTRACTS)[:2] if plan.short else list(CONTRACTS)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        runs = pool.map(partial(_three, plan), names)
    return [figure for name, three in zip(names, runs, strict=True) for figure in _compare(name, *three)]


def _three(plan: Plan, name: str) -> tuple[Run, Run, Run]:
    """On the CPU, there again, and on the device."""
    demo, cpu = f"{name}/demo.yaml", Plan("cpu")
    same = "federation.public_start=true"  # all begin with the same parameters
    return run(demo, same, *cpu.everybody), run(demo, same, *cpu.everybody), run(demo, same, *plan.everybody)


def _compare(name: str, here: Run, again: Run, there: Run) -> list[Figure]:
    apart, alone = (_apart(here, other) for other in (there, again))
    accuracy, itself = (abs(_accuracy(here) - _accuracy(other)) for other in (there, again))
    first, last = (1e-3, 2.0) if alone == itself == 0 else (None, None)
    floor = "the CPU's second run"
    return [
        Figure(f"{name}, first losses, relative difference to the CPU's", apart, first, "", alone or None, floor),
        Figure(f"{name}, test accuracy, difference to the CPU's", accuracy, last, "points", itself or None, floor),
    ]


def _apart(one: Run, other: Run) -> float:
    pairs = zip(one.rounds()[:_FIRST], other.rounds()[:_FIRST], strict=True)
    return max(abs(a["loss"] - b["loss"]) / max(abs(a["loss"]), 1e-9) for a, b in pairs)


def _accuracy(done: Run) -> float:
    return 100 * float(done.summary["metrics"]["test_accuracy"])


def shared(plan: Plan) -> list[Figure]:
    """A server and three parties with `device: auto`, as the launcher assigns them."""
    sets = ("federation.parties=3", "federation.epochs=1", "server.device=auto", "every_party.device=auto")
    done = run("split/demo.yaml", *sets)
    members = [done.events, *done.parties.values()]
    devices = [next(event["device"] for event in events if event["kind"] == "begin") for events in members]
    told.print(f"devices: {', '.join(devices)}")
    wanted = torch.device(plan.device).type
    return [Figure("members on the device", sum(d.startswith(wanted) for d in devices), 4, "", least=True)]


def epoch(plan: Plan) -> list[Figure]:
    """An epoch of VIMADMM among 14 parties after the first, against the bare local steps."""
    batches = 3 if plan.short else 53
    length = ("federation.epochs=0", f"federation.rounds={2 * batches}", "federation.evaluate.every=100000")
    floor = vimadmm_steps(torch.device(plan.device), batches)
    training = run("vimadmm/mnist.yaml", *length, *plan.everybody)
    seconds = sum(event["seconds"] for event in training.rounds()[batches:])
    return [
        Figure(f"VIMADMM, {batches} rounds, 14 parties, mutual TLS", seconds, None, "s", floor, "bare local steps"),
        *_shares("VIMADMM", training),
    ]


def resnet(name: str, plan: Plan) -> list[Figure]:
    """A round of split learning between two parties with half an image each, against the same in one process; and in
    bfloat16, and with the fastest kernels, against that round.
    """
    rounds = _WARM + (2 if plan.short else 100)
    floor = resnet_step(torch.device(plan.device), name, rounds - _WARM)
    variants = {
        "bfloat16": (f"every_party.model={{name: {name}, precision: bfloat16}}",),
        "fastest kernels": ("every_party.repeatable=false", "server.repeatable=false"),
    }
    training = run(_halves(name, rounds), *plan.everybody)
    what, ours = f"{name} split round, two parties", 1e3 * training.round_seconds(_WARM)
    figures = [Figure(what, ours, None, "ms", 1e3 * floor, "the same in one process")]
    for how, sets in variants.items():
        other = 1e3 * run(_halves(name, rounds), *plan.everybody, *sets).round_seconds(_WARM)
        figures.append(Figure(f"{what}, {how}", other, None, "ms", ours, "that round"))
    return [*figures, *_shares(name, training)]


def _halves(name: str, rounds: int) -> dict[str, object]:
    """CIFAR-10 between two parties; only 128 rows are evaluated, at the end."""
    step = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
    cifar = {"source": "cifar", "folder": "cifar10"}
    split = {"kind": "halves", "side": "left-right"}
    return {
        "federation": {
            "id": "gpu", "protocol": {"name": "split", "embedding": WIDTH}, "parties": 2, "classes": 10,
            "rounds": rounds, "batch": BATCH, "rows": {"validation": 0, "test": BATCH},
            "evaluate": {"every": rounds}, "timeouts": {"answer": 600}, "seed": 0,
        },
        "server": {"labels": cifar, "head": {"name": "linear", "bias": True}, "optimiser": step},
        "every_party": {"data": {**cifar, "split": split, "scale": "unit"}, "model": name, "optimiser": step},
    }  # fmt: skip


def _shares(name: str, training: Run) -> list[Figure]:
    return [
        Figure(f"{name}, {member}, {phase}", seconds, None, "s", sum(phases.values()), "all its phases")
        for member, phases in training.phases().items()
        for phase, seconds in phases.items()
        if seconds
    ]


def _name_of(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "no GPU (a rehearsal)"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="what needs a GPU, in 20 minutes")
    parser.add_argument("--device", default="cuda:0", help="cuda:N; cpu rehearses")
    parser.add_argument("--short", action="store_true", help="every part as small as it can be")
    parser.add_argument("--write", action="store_true", help="puts the table into docs/results/performance.md")
    options = parser.parse_args(argv)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no GPU here, or this PyTorch is built without CUDA; --device cpu --short rehearses")
    if options.write and not options.device.startswith("cuda"):
        parser.error("--write: only what a GPU did is written")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
