"""Every benchmark by name, with its needs; and why the other modules of this folder are not benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks import (
    accuracy,
    afe,
    auxiliary,
    blinding,
    checkpoints,
    coded,
    communication,
    czofo,
    epoch,
    exchange,
    field,
    flood,
    halves,
    predict,
    processes,
    psi,
    psi_checks,
    python,
    quantise,
    recovery,
    scaling,
    serve,
    shares,
    start,
    stragglers,
    tables,
)
from benchmarks.report import Figure
from colonnade.common.data.known_sets.catalogue import KNOWN
from colonnade.common.data.known_sets.places import VARIABLE, presence


@dataclass(frozen=True)
class Benchmark:
    call: Callable[[], list[Figure]]
    minutes: float
    sets: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The first line of its module's docstring, or of its function's where the module has several."""
        documented = self.call if self.call.__name__ != "main" else sys.modules[self.call.__module__]
        return (documented.__doc__ or "").splitlines()[0]

    def missing(self) -> str:
        """Why it cannot be run, and what to do; "" if all of its data sets are here."""
        for name in self.sets:
            found = presence(name, KNOWN[name])
            if found is None or found.files < len(KNOWN[name].files):
                return f"{name} is not here: set {VARIABLE}, or run `colonnade datasets fetch {name}`"
        return ""


BENCHMARKS: Mapping[str, Benchmark] = {
    "auxiliary": Benchmark(auxiliary.main, 0.2),
    "field": Benchmark(field.main, 0.5),
    "blinding": Benchmark(blinding.main, 1, ("mnist",)),
    "recovery": Benchmark(recovery.main, 6),
    "quantise": Benchmark(quantise.main, 1),
    "exchange": Benchmark(exchange.main, 0.3),
    "start": Benchmark(start.main, 1, ("mnist",)),
    "halves": Benchmark(halves.main, 0.3, ("fashion-mnist",)),
    "predict": Benchmark(predict.main, 1),
    "serve": Benchmark(serve.main, 0.5),
    "split": Benchmark(epoch.split, 1, ("mnist",)),
    "epoch": Benchmark(epoch.main, 2, ("mnist",)),
    "checkpoints": Benchmark(checkpoints.main, 1.5, ("mnist",)),
    "psi": Benchmark(psi.main, 3),
    "psi-checks": Benchmark(psi_checks.main, 3),
    "coded": Benchmark(coded.main, 1, ("fashion-mnist",)),
    "czofo": Benchmark(czofo.main, 1, ("mnist",)),
    "afe": Benchmark(afe.main, 1),
    "scaling": Benchmark(scaling.main, 1),
    "processes": Benchmark(processes.main, 1),
    "python": Benchmark(python.main, 1),
    "shares": Benchmark(shares.main, 1),
    "stragglers": Benchmark(stragglers.main, 4),
    "tables": Benchmark(tables.main, 1),
    "flood": Benchmark(flood.main, 5),
    "communication": Benchmark(communication.main, 10, ("mnist",)),
    "accuracy": Benchmark(accuracy.main, 30, ("mnist",)),
}

APART: Mapping[str, str] = {
    "columns": "attacks on columns for docs/attacks.md, and times nothing",
    "bytes_figure": "draws a picture of docs/protocols/czofo.md, and times nothing",
    "default_table": "compares protocols for docs/defaults.md, and times nothing",
    "drill": "kills members and looks at what is left: `make drill`",
    "learning_sets": "the sets of `default_table`",
    "small_tables": "compares defaults with a search for docs/defaults.md, and times nothing",
    "leakage": "runs attacks for docs/attacks.md, and times nothing",
    "leakage_deeper": "the second table of `leakage`",
    "epsilon_figure": "draws the picture of docs/choosing.md, and times nothing",
    "rescaling": "an audit for docs/protocols/vfl_afe.md, and times nothing",
    "raw_http2": "a stranger of `strangers`",
    "strangers": "memory that strangers take of two ports: `python -m benchmarks.strangers`",
    "flooders": "the strangers of flood, as a process",
    "gpu": "needs a GPU: `python -m benchmarks.gpu`",
    "gpu_loops": "the floors of `gpu`",
    "kept": "the results' file",
    "machine": "names the machine",
    "moving_picture": "draws docs/figures/run.svg, and times nothing",
    "noise_sets": "noise in the files of MNIST and CIFAR-10",
    "registry": "this list",
    "report": "figures and tables",
    "runs": "runs of `up`",
    "straggler_figures": "draws pictures of docs/protocols/fedvs.md, on the virtual clock",
    "synthetic": "columns of noise",
    "times": "the stopwatch",
}
