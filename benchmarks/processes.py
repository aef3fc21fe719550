"""Cost of more parties, each a process: launch, a round, and memory, among 2, 4, 8 and 16.

Split learning on columns of noise (synthetic.py), batches of 256, over mutual TLS as `up` starts it. A round is
compared with the same federation on the virtual clock in one process, which runs both sides without a network.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import yaml

from benchmarks.report import Figure, median
from benchmarks.runs import read, started
from benchmarks.scaling import point_of
from benchmarks.start import memory
from benchmarks.synthetic import Setting, write

PARTIES = (2, 4, 8, 16)
ROUNDS, WARM = 250, 20


def main() -> list[Figure]:
    """Three figures for each number of parties, without bounds."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        return [figure for parties in PARTIES for figure in _among(Setting("split", parties), Path(scratch))]


def _among(setting: Setting, folder: Path) -> list[Figure]:
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(setting.tree(ROUNDS)), encoding="utf-8")
    with started(str(file)) as (process, out):
        beyond = memory(process, out, rounds=WARM)
        if process.wait():
            raise SystemExit(f"{setting.parties} parties: exit code {process.returncode}")
        run = read(out)
    seconds = median([event["seconds"] for event in run.rounds()[WARM:]])
    alone = point_of(setting, folder).seconds
    who = f"{setting.parties} parties as processes"
    return [
        Figure(f"{who}, launch to first round", run.summary["seconds_to_first_round"], None, "s"),
        Figure(f"{who}, a split round", 1e3 * seconds, None, "ms", 1e3 * alone, "the same in one process, no wire"),
        Figure(f"{who}, proportional memory of one", beyond / 1e6, None, "MB"),
    ]
