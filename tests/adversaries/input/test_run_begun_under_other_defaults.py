"""A run that version 0.1.0 began goes on after an update, with the neighbours and the accounting that it began with.

Bounds: no cell.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from colonnade.cli.read.card import card
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.parsing.earlier_defaults import as_begun, load_begun
from colonnade.common.parsing.file import parse
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.state import Snapshot
from colonnade.server.privacy.label_budget import open_releases
from colonnade.testing.digits import digits
from tests.support.federation import config, tree
from tests.support.household import colonnade, household

SPLIT = {"name": "split", "embedding": 8}
SILENT = {"clip": 1.0, "noise_multiplier": 50.0, "delta": 1e-5}
BEFORE = {**SILENT, "adjacency": "participation", "accounting": "renyi"}


def file(privacy: dict, rounds: int = 3) -> dict:
    return tree(SPLIT, parties=2, rounds=rounds, epochs=0, checkpoint={"rounds": 1}, privacy=privacy)


def saved(folder: Path, begun: Config, *, without: str = "", steps: dict | None = None) -> Path:
    """A folder with a checkpoint of a run."""
    hashes = {key: value for key, value in begun.federation.lasting_hashes().items() if key != without}
    hashes |= steps or {}
    Checkpoints(folder / "checkpoints").save(1, Snapshot({}, {}), Owner("party1", "7", hashes))
    return folder


def test_a_configuration_of_0_1_0_equals_one_with_its_defaults_written_out(tmp_path: Path) -> None:
    """Its checkpoints have no hash of a key that was not there."""
    before = parse(file(BEFORE))
    assert "privacy.accounting" not in before.federation.lasting_hashes()
    found = as_begun(parse(file(SILENT)), saved(tmp_path, before)).federation
    assert (found.privacy.adjacency, found.privacy.accounting) == ("participation", "renyi")
    assert found.hashes() == before.federation.hashes()


def test_a_run_that_was_begun_since_keeps_its_own(tmp_path: Path) -> None:
    silent = parse(file(SILENT))
    assert "privacy.accounting" in silent.federation.lasting_hashes()
    assert as_begun(silent, tmp_path) == silent  # nothing was begun
    assert as_begun(silent, saved(tmp_path, silent)) == silent
    mixed = parse(file(SILENT | {"accounting": "renyi"}))
    found = as_begun(silent, saved(tmp_path / "mixed", mixed)).federation.privacy
    assert (found.adjacency, found.accounting) == ("replace", "renyi")


def test_a_file_that_names_a_key_is_taken_at_its_word(tmp_path: Path) -> None:
    said = parse(file(SILENT | {"adjacency": "replace", "accounting": "exact"}))
    assert as_begun(said, saved(tmp_path, parse(file(BEFORE)))) == said


def test_rows_have_no_adjacency_that_could_be_another(tmp_path: Path) -> None:
    silent = config({"name": "vfl_afe", "embedding": 8})
    found = as_begun(silent, saved(tmp_path, silent, without="privacy.accounting")).federation.privacy
    assert (found.adjacency, found.accounting) == ("row", "renyi")


@pytest.mark.parametrize(("begun", "goes_on"), [(False, False), (True, True)])
def test_a_coded_run_keeps_its_masks_or_goes_on_without(begun: bool, goes_on: bool, tmp_path: Path) -> None:
    """`masked_answers` was off by default."""
    silent = config({"name": "fedvs", "embedding": 8})
    assert silent.federation.protocol.masked_answers
    before = config({"name": "fedvs", "embedding": 8, "masked_answers": begun})
    found = as_begun(silent, saved(tmp_path, before)).federation
    assert found.protocol.masked_answers is goes_on and found.hashes() == before.federation.hashes()
    said = config({"name": "fedvs", "embedding": 8, "masked_answers": True})
    assert as_begun(said, tmp_path) == said


_BEFORE = {
    "vimadmm": {"rho": 1.0, "tau": 20, "damping": "none"},
    "vimadmm_j": {"rho": 1.0, "tau": 20, "damping": "none"},
    "linear_admm": {"rho": 0.03, "damping": "none"},
    "fedvs": {"data_bits": 8, "weight_bits": 12, "stragglers": 1, "columns": 1024},
}


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
    assert as_begun(silent, saved(tmp_path / "new", silent)).federation.hashes() == silent.federation.hashes()


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


def test_hashes_that_were_cut_short_are_known_again(tmp_path: Path) -> None:
    hashes = {key: value[:12] for key, value in parse(file(BEFORE)).federation.lasting_hashes().items()}
    Checkpoints(tmp_path / "checkpoints").save(1, Snapshot({}, {}), Owner("party1", "7", hashes))
    assert as_begun(parse(file(SILENT)), tmp_path).federation.privacy.adjacency == "participation"


def test_response_noise_counted_by_renyi_is_still_counted_by_renyi(tmp_path: Path) -> None:
    answers = {"clip": 0.1, "head_clip": 1, "noise_multiplier": 20}
    cfg = config({"name": "vafl"}, f"server.privacy.answers={json.dumps(answers)}")
    asked, federation = cfg.server.privacy.answers, cfg.federation
    from colonnade.common.contracts.schedule import Schedule

    schedule = Schedule(federation, 1797, 0)

    def accounting(record: dict | None) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        if record is not None:
            (folder / "answers.json").write_text(json.dumps(record))
        return open_releases(asked, schedule, 4, 1797, folder, begun=record is not None).accounting

    kept = {"ceiling": 5, "noise_multiplier": 20.0, "seeded": False}
    assert [accounting(None), accounting(kept), accounting(kept | {"accounting": "exact"})] == [
        "exact", "renyi", "exact",
    ]  # fmt: skip


def test_a_folder_of_0_1_0_is_resumed_as_a_whole_and_member_by_member(tmp_path: Path) -> None:
    path, run = tmp_path / "federation.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(file(BEFORE)))
    assert "completed" in colonnade("up", path, "--out", run, "--insecure")[1]
    left = yaml.safe_load((run / "config.yaml").read_text())
    assert left["federation"]["privacy"]["accounting"] == "renyi"  # the folder has the resolved configuration
    del left["federation"]["privacy"]["accounting"]  # as 0.1.0 wrote it
    (run / "config.yaml").write_text(yaml.safe_dump(left))
    assert load_begun(run / "config.yaml").federation.privacy.accounting == "renyi"

    assert "completed" in colonnade("up", "--resume", run, "--insecure", "--set", "federation.rounds=5")[1]
    _is_as_begun(run, at_least=5)
    card(run, None)

    for name in ("server", "party1", "party2"):
        own = parse(file(SILENT, rounds=7)).model_dump(mode="json", exclude_none=True)
        section = {"server": own["server"]} if name == "server" else {"parties": {name: own["parties"][name]}}
        agreed = {**own["federation"], "privacy": SILENT}
        if name == "server":
            section["server"]["listen"] = "127.0.0.1:0"
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"federation": agreed, **section}))
    address = tmp_path / "address"
    more = ("--insecure", "--base", tmp_path)
    with household(tmp_path) as members:
        members.begin("server", "server", tmp_path / "server.yaml", "--resume", run, *more)
        address.write_text(members.address_of("server", run, starts=3))
        for name in ("party1", "party2"):
            own = ("--resume", run / "parties" / name, "--server-file", address)
            members.begin(name, "client", tmp_path / f"{name}.yaml", *own, *more)
        ended = {name: members.finish(name) for name in ("server", "party1", "party2")}
    assert {code for code, _ in ended.values()} == {0}, ended
    _is_as_begun(run, at_least=7)


def _is_as_begun(run: Path, at_least: int) -> None:
    summary = json.loads((run / "summary.json").read_text())
    spent = summary["privacy"]
    assert (summary["status"], spent["adjacency"], spent["accounting"]) == ("completed", "participation", "renyi")
    assert summary["rounds"] == at_least
    for name, count in spent["releases"].items():
        cost = epsilon(count, 50.0, 1e-5, "participation", "renyi")
        assert count > at_least and summary["epsilon"][name] == pytest.approx(cost, rel=1e-4)
