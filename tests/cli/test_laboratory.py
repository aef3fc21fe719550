"""The core without the distribution `colonnade-lab`: its commands say what to install, and all others do without."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace

import pytest

import colonnade
from colonnade import laboratory
from colonnade.common.errors import InputError
from colonnade.common.version import VERSION
from tests.support import warm
from tests.support.household import colonnade as command


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "entry_points", lambda group: EntryPoints())


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize("words", [["attack", "run", "--kind", "labels"], ["reproduce"], ["compare", "--list"]])
def test_its_commands_say_what_to_install(words: list[str]) -> None:
    code, said = command(*words)
    assert code == 2 and "part of colonnade-lab, which is not installed" in " ".join(said.split())
    assert f"pip install colonnade-lab=={VERSION}" in " ".join(said.split())


@pytest.mark.usefixtures("absent")
def test_other_commands_do_without() -> None:
    code, said = command("protocols")
    assert code == 0 and "vimadmm" in said
    with pytest.raises(InputError, match=r"colonnade\.attack is part of colonnade-lab"):
        _ = colonnade.attack


def test_a_laboratory_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("attack", "colonnade_lab.attacks", laboratory.GROUP)
    vars(entry).update(dist=SimpleNamespace(version="0.1.0"))
    monkeypatch.setattr(laboratory, "installed", lambda: {"attack": entry})
    with pytest.raises(InputError, match=rf"colonnade-lab has version 0\.1\.0, colonnade has {VERSION}"):
        laboratory.load("attack", "attack")


def test_the_name_of_the_attacks_until_0_2_warns_and_works() -> None:
    program = """import warnings; warnings.simplefilter("always")
from colonnade.attacks import labels; from colonnade.attacks.run import open_run; print(labels.__name__)"""
    done = warm.run([sys.executable, "-c", program], capture_output=True)
    assert done.stdout.strip().endswith("attacks.labels") and "DeprecationWarning: colonnade.attacks" in done.stderr
    assert colonnade.attack.__name__ == "colonnade_lab.attacks"
