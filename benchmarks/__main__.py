"""`python -m benchmarks [NAME ...]`: runs the benchmarks, all or some, and prints one table."""

from __future__ import annotations

import sys
from collections.abc import Callable

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
    halves,
    predict,
    psi,
    quantise,
    start,
    stragglers,
)
from benchmarks.report import Figure, console, show

BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "auxiliary": auxiliary.main,
    "field": field.main,
    "blinding": blinding.main,
    "quantise": quantise.main,
    "exchange": exchange.main,
    "start": start.main,
    "halves": halves.main,
    "predict": predict.main,
    "split": epoch.split,
    "epoch": epoch.main,
    "checkpoints": checkpoints.main,
    "psi": psi.main,
    "coded": coded.main,
    "czofo": czofo.main,
    "afe": afe.main,
    "stragglers": stragglers.main,
    "communication": communication.main,
    "accuracy": accuracy.main,
}


def main() -> None:
    """Runs what is named, or everything; exits with 1 if a bound is broken."""
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    for name in names:
        console.print(f"{name} ...", style="dim")
        figures += BENCHMARKS[name]()
    show(figures)
    raise SystemExit(0 if all(figure.holds for figure in figures) else 1)


if __name__ == "__main__":
    main()
