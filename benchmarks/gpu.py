"""Everything that needs a GPU, in twenty minutes: `python -m benchmarks.gpu`.

The suite's device tests; every protocol's demo on the GPU against the CPU; four members on one GPU; an epoch of VIMADMM
on MNIST and split learning with ResNet-18 and ResNet-50 on CIFAR-10, each against the same training in one process on
the same device. Missing data sets are replaced by noise of the same size, which takes the same time.

`--write` puts the table into docs/performance.md. `--device cpu --short` rehearses without a GPU; its figures mean
nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import yaml

from benchmarks import gpu_loops, machine, noise_sets
from benchmarks.__main__ import run as run_benchmark
from benchmarks.__main__ import told
from benchmarks.registry import Benchmark
from benchmarks.report import Figure, Result, markdown, median, show
from benchmarks.runs import ROOT, Run, run
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.data.known_sets.catalogue import KNOWN
from colonnade.common.data.known_sets.places import presence
from colonnade.common.run.json_lines import read_lines

PAGE = ROOT / "docs" / "performance.md"
TABLE = re.compile(r"(?<=<!-- gpu table -->\n).*?(?=<!-- end of gpu table -->)", re.DOTALL)
_FIRST = 5  # rounds whose losses are compared, before rounding errors have grown
_AT_ONCE = 4  # demos
_WARM = 10  # rounds excluded from times


@dataclass(frozen=True)
class Plan:
    """One run of this program; `short` makes every part as small as possible."""

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
        "device tests": suite, "demos": demos, "one GPU": shared, "epoch": epoch,
        "resnet18": partial(resnet, "resnet18"), "resnet50": partial(resnet, "resnet50"),
    }  # fmt: skip
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as scratch:
        if any(presence(name, KNOWN[name]) is None for name in ("mnist", "cifar10")):
            told.print("MNIST or CIFAR-10 is not here: noise of their size is measured", style="yellow")
            noise_sets.write(Path(scratch))
        for name, part in parts.items():
            told.print(f"{name} ...", style="dim")
            results[name] = run_benchmark(Benchmark(partial(part, plan), 4))
    where = f"{_name_of(plan.device)}; {machine.describe()}"
    show(results, where)
    if options.write:
        PAGE.write_text(
            TABLE.sub(lambda _: f"\n{markdown(results, where)}\n\n", PAGE.read_text(encoding="utf-8")), encoding="utf-8"
        )
    return 0 if all(result.holds for result in results.values()) else 1


def suite(plan: Plan) -> list[Figure]:
    """The tests of devices, including the one that needs a GPU."""
    argv = [sys.executable, "-m", "pytest", "-q", "tests/protocols/test_devices.py", "-o", "timeout=600"]
    argv += ["-k", "refuses"] if plan.short else []
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    told.print(ended.stdout[-2000:], markup=False)
    return [Figure("exit code of the device tests", ended.returncode, 0, "")]


def demos(plan: Plan) -> list[Figure]:
    """Each on the CPU and on the device: initial losses within a thousandth, test accuracy within two points."""
    names = list(CONTRACTS)[:2] if plan.short else list(CONTRACTS)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pairs = pool.map(partial(_twice, plan), names)
    return [figure for name, (here, there) in zip(names, pairs, strict=True) for figure in _compare(name, here, there)]


def _twice(plan: Plan, name: str) -> tuple[Run, Run]:
    demo = f"{name}/demo.yaml"
    cpu = Plan("cpu")
    return run(demo, *cpu.everybody), run(demo, *plan.everybody)


def _compare(name: str, here: Run, there: Run) -> list[Figure]:
    pairs = zip(here.rounds()[:_FIRST], there.rounds()[:_FIRST], strict=True)
    apart = max(abs(a["loss"] - b["loss"]) / max(abs(a["loss"]), 1e-9) for a, b in pairs)
    accuracy = [100 * float(each.summary["metrics"]["test_accuracy"]) for each in (here, there)]
    return [
        Figure(f"{name}, first losses against the CPU's, largest relative difference", apart, 1e-3, ""),
        Figure(f"{name}, test accuracy against the CPU's", abs(accuracy[0] - accuracy[1]), 2.0, "points"),
    ]


def shared(plan: Plan) -> list[Figure]:
    """A server and three parties with `device: auto`, as the launcher assigns them."""
    sets = ("federation.parties=3", "federation.epochs=1", "server.device=auto", "every_party.device=auto")
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        argv = [sys.executable, "-m", "colonnade", "up", str(ROOT / "experiments/split/demo.yaml"), "--out", str(out)]
        argv += [word for each in sets for word in ("--set", each)]
        subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        members = [out, *sorted((out / "parties").iterdir())]
        devices = [next(e["device"] for e in read_lines(m / "events.jsonl") if e["kind"] == "begin") for m in members]
    told.print(f"devices: {', '.join(devices)}")
    wanted = torch.device(plan.device).type
    return [Figure("members on the device", sum(d.startswith(wanted) for d in devices), 4, "", least=True)]


def epoch(plan: Plan) -> list[Figure]:
    """An epoch of VIMADMM among 14 parties after the first, against the bare local steps."""
    batches = 3 if plan.short else 53
    length = ("federation.epochs=0", f"federation.rounds={2 * batches}", "federation.evaluate.every=100000")
    floor = gpu_loops.local_steps(torch.device(plan.device), batches)
    training = run("vimadmm/mnist.yaml", *length, *plan.everybody)
    seconds = sum(event["seconds"] for event in training.rounds()[batches:])
    return [
        Figure(f"VIMADMM, {batches} rounds, 14 parties, mutual TLS", seconds, None, "s", floor, "bare local steps"),
        *_shares("VIMADMM", training),
    ]


def resnet(name: str, plan: Plan) -> list[Figure]:
    """A round of split learning between two parties with half an image each, against the same in one process."""
    rounds = _WARM + (2 if plan.short else 100)
    floor = gpu_loops.resnet_step(torch.device(plan.device), name, rounds - _WARM)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "run.yaml"
        file.write_text(yaml.safe_dump(_halves(name, rounds)), encoding="utf-8")
        training = run(str(file), *plan.everybody)
    seconds = median([event["seconds"] for event in training.rounds()[_WARM:]])
    return [
        Figure(f"{name} split round, two parties", 1e3 * seconds, None, "ms", 1e3 * floor, "the same in one process"),
        *_shares(name, training),
    ]


def _halves(name: str, rounds: int) -> dict[str, object]:
    """CIFAR-10 between two parties; only 128 rows are evaluated, at the end."""
    step = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
    cifar = {"source": "cifar", "folder": "cifar10"}
    split = {"kind": "halves", "side": "left-right"}
    return {
        "federation": {
            "id": "gpu", "protocol": {"name": "split", "embedding": gpu_loops.WIDTH}, "parties": 2, "classes": 10,
            "rounds": rounds, "batch": gpu_loops.BATCH, "rows": {"validation": 0, "test": gpu_loops.BATCH},
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
    parser.add_argument("--write", action="store_true", help="puts the table into docs/performance.md")
    options = parser.parse_args(argv)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no GPU here, or this PyTorch is built without CUDA; --device cpu --short rehearses")
    if options.write and not options.device.startswith("cuda"):
        parser.error("--write: only what a GPU did is written")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
