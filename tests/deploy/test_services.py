"""Compose files agree with each other, units pass systemd's own checks, and the Slurm script runs with stand-ins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from colonnade.cli.main import app
from colonnade.common.errors import BudgetSpent, EnvironmentFault, InputError, PeerError, TrainingDiverged

ROOT = Path(__file__).parents[2]
BASE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
MORE = sorted((ROOT / "deploy" / "compose.protocols").glob("*.yml"))
OF_THE_PROJECT = {"deal", "server", "party1", "party2", "party3", "party4", "report"}


def test_every_service_is_locked_and_every_member_has_its_own_volumes() -> None:
    assert BASE["services"].keys() == OF_THE_PROJECT
    for name, service in BASE["services"].items():
        assert (
            service["read_only"] and service["cap_drop"] == ["ALL"] and service["mem_limit"] and service["pids_limit"]
        )
        assert service["security_opt"] == ["no-new-privileges:true"] and "ports" not in service
        assert "user" not in service or service["network_mode"] == "none", name
    for name in OF_THE_PROJECT - {"deal", "report"}:
        assert BASE["services"][name]["environment"]["COLONNADE_ALIGNMENTS"] == "/alignments"
        assert BASE["services"][name]["volumes"] == [
            f"{name}:/member:ro",
            f"{name}-keys:/member/keys:ro",
            f"{name}-runs:/runs",
            f"{name}-alignments:/alignments",
        ]
        assert {f"{name}:/members/{name}", f"{name}-keys:/members/{name}/keys"} < {*BASE["services"]["deal"]["volumes"]}


@pytest.mark.parametrize("file", MORE, ids=lambda file: file.stem)
def test_the_parties_of_an_overlay_are_like_the_others(file: Path) -> None:
    overlay = yaml.safe_load(file.read_text())
    (experiment,) = overlay["services"].pop("deal")["environment"].values()
    parties = yaml.safe_load((ROOT / experiment).read_text())["federation"]["parties"]
    assert [*overlay["services"]] == [f"party{number}" for number in range(5, parties + 1)]
    for name, service in overlay["services"].items():
        like = BASE["services"]["party1"]
        assert service == like | {"volumes": [volume.replace("party1", name) for volume in like["volumes"]]}
        assert {name, f"{name}-keys", f"{name}-runs", f"{name}-alignments"} <= overlay["volumes"].keys()


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


FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = {
    "colonnade-server.service": "colonnade-server.service",
    "colonnade-party@.service": "colonnade-party@bank.service",
}
WORST = 20  # tenths of a point, of 100: systemd's own scale, on which a plain service has 96

systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")


def settings(unit: str) -> dict[str, list[str]]:
    """Every value by its key, in order."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (FOLDER / unit).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def installed(folder: Path, unit: str) -> Path:
    """The unit as installed, with a program of this machine."""
    path = folder / UNITS[unit]
    path.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", (FOLDER / unit).read_text(), flags=re.M))
    return path


@systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_every_line(tmp_path: Path, unit: str) -> None:
    argv = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(installed(tmp_path, unit))]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@systemd
@pytest.mark.parametrize("unit", UNITS)
def test_the_sandbox_is_tight(tmp_path: Path, unit: str) -> None:
    path = installed(tmp_path, unit)
    argv = ["systemd-analyze", "security", "--offline=true", f"--threshold={WORST}", "--no-pager", str(path)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("unit", UNITS)
def test_errors_that_a_restart_cannot_fix_cause_no_restart(unit: str) -> None:
    never = {int(code) for code in settings(unit)["RestartPreventExitStatus"][0].split()}
    assert never == {InputError.exit_code, BudgetSpent.exit_code, TrainingDiverged.exit_code}
    assert not never & {PeerError.exit_code, EnvironmentFault.exit_code}
    assert settings(unit)["Restart"] == ["on-failure"]


@pytest.mark.parametrize(
    ("unit", "command"), [("colonnade-server.service", "server"), ("colonnade-party@.service", "client")]
)
def test_a_unit_starts_a_command_that_there_is_in_the_folder_that_it_may_write(unit: str, command: str) -> None:
    (line,) = settings(unit)["ExecStart"]
    _, name, file, option, folder = line.split()
    assert name == command and name in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert option == "--in" and file.startswith("/etc/colonnade/")
    run, alignments = settings(unit)["StateDirectory"][0].split()
    assert folder == f"/var/lib/{run}"
    assert f"COLONNADE_ALIGNMENTS=%S/{alignments}" in settings(unit)["Environment"][0].split()
    assert not f"{alignments}/".startswith(f"{run}/")  # the count of a day outlives the run's folder


def test_both_units_have_the_same_sandbox() -> None:
    own = {"Description", "ExecStart", "StateDirectory", "CacheDirectory", "Environment"}
    server, party = ({k: v for k, v in settings(unit).items() if k not in own} for unit in UNITS)
    assert server == party
