"""The script for Slurm, with stand-ins for the commands that Slurm and torch bring."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "party.sbatch"
STANDS_IN = {
    "scontrol": "echo node7; echo node8",
    "srun": 'shift; for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@"; done',
    "torchrun": 'echo "$OMP_NUM_THREADS: $*"',
}


def test_every_node_starts_its_ranks_of_one_group(tmp_path: Path) -> None:
    for name, body in STANDS_IN.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"JOB_NODELIST": "node[7-8]", "JOB_NUM_NODES": "2", "JOB_ID": "41007", "CPUS_PER_TASK": "8"}
    given = {f"SLURM_{name}": value for name, value in slurm.items()} | {"RUN": "/runs/my bank", "RANKS_PER_NODE": "4"}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(["sh", SCRIPT, "my bank.yaml"], capture_output=True, text=True, check=True, env=path | given)
    group = "--nnodes 2 --nproc-per-node 4 --master-addr node7 --master-port 29507"
    assert ended.stdout.splitlines() == [
        f"2: --node-rank {node} {group} -m colonnade client my bank.yaml --in /runs/my bank" for node in (0, 1)
    ]
