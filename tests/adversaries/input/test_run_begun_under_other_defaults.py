"""A run that version 0.2.0 began goes on after an update, with the constants of its protocol that it began with.

Bounds: no cell.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.parsing.earlier_defaults import as_begun, load_begun
from colonnade.common.parsing.file import parse
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.state import Snapshot
from colonnade.testing.trial import digits
from tests.support.federation import config

SPLIT = {"name": "split", "embedding": 8}


def saved(folder: Path, begun: Config, *, steps: dict | None = None) -> Path:
    """A folder with a checkpoint of a run."""
    hashes = begun.federation.lasting_hashes() | (steps or {})
    Checkpoints(folder / "checkpoints").save(1, Snapshot({}, {}), Owner("party1", "7", hashes))
    return folder


_BEFORE = {
    "vimadmm": {"rho": 1.0, "tau": 20, "damping": "none"},
    "vimadmm_j": {"rho": 1.0, "tau": 20, "damping": "none"},
    "linear_admm": {"rho": 0.03, "damping": "none"},
    "fedvs": {"data_bits": 8, "weight_bits": 12, "stragglers": 1, "columns": 1024},
}
_NOW = {name: {key: CONTRACTS[name].config.model_fields[key].default for key in keys} for name, keys in _BEFORE.items()}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", list(_BEFORE))
def test_a_run_of_0_2_0_keeps_the_constants_of_its_protocol(name: str, task: str, tmp_path: Path) -> None:
    agreed = {"task": task, "classes": 10 if task == "classification" else 0, "parties": 4, "stop": "none"}
    silent = parse(digits({"name": name}, **agreed))
    before = parse(digits({"name": name, **_BEFORE[name]}, **agreed))
    assert "protocol.damping" not in before.federation.lasting_hashes()  # that version knew no such key
    steps = {key: value for key, value in before.federation.hashes().items() if key == "protocol.tau"}
    found = as_begun(silent, saved(tmp_path, before, steps=steps)).federation  # that version kept a hash of tau
    assert found.hashes() == before.federation.hashes()
    assert as_begun(silent, saved(tmp_path / "new", silent)) == as_begun(silent, tmp_path / "none") == silent
    said = parse(digits({"name": name, **_NOW[name]}, **agreed))
    assert as_begun(said, tmp_path) == said


_KEYS = {
    "agg_vfl": "missing", "c_vfl": "local_steps head missing", "centralized": "columns",
    "czofo": "directions mu delta draw antithetic combine arrivals ahead theorem", "fdml": "aggregate missing",
    "fedbcd": "tau missing", "local": "", "split": "missing", "split_avg": "combine arrivals aggregate missing",
    "syn_zoo_vfl": "combine mu draw missing", "vafl": "weights_lr arrivals missing", "vfedmh": "aggregate",
    "fedvs": "segments stragglers masks prime data_bits weight_bits masked_answers columns chunk",
    "linear_admm": "rho beta missing", "vfl_afe": "missing", "vimadmm": "rho tau dual_step residual head missing",
    "vimadmm_j": "rho tau dual_step update aggregate missing", "zoo_vfl": "combine mu draw",
}  # fmt: skip


@pytest.mark.parametrize("name", list(_KEYS))
def test_a_key_that_0_2_0_did_not_have_has_no_hash_at_its_former_value(name: str) -> None:
    """A run of that version would be refused by members that resume it: it has no hash of the key."""
    protocol = CONTRACTS[name].config(**_BEFORE.get(name, {}))
    agreed = config(SPLIT).federation.model_copy(update={"protocol": protocol})
    ours = {key.split(".")[1] for key in agreed.hashes() if key.startswith("protocol.")}
    assert ours <= {"name", "embedding", *_KEYS[name].split()}


@pytest.mark.parametrize("name", ["vimadmm_j", "linear_admm"])
def test_a_stored_configuration_of_0_2_0_is_not_damped(name: str, tmp_path: Path) -> None:
    stored = json.loads(parse(digits({"name": name, "damping": "none"})).model_dump_json())
    del stored["federation"]["protocol"]["damping"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(stored))
    assert load_begun(path).federation.protocol.damping == "none"
