"""The units in deploy/systemd, by systemd's own checks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from colonnade.cli.main import app
from colonnade.common.errors import BudgetSpent, EnvironmentFault, InputError, PeerError, TrainingDiverged

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
