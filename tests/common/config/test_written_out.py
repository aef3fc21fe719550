"""The experiments of the papers write out their settings: other defaults leave them as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.config.optimisers import AdagradConfig
from colonnade.common.config.protocol import Defaults
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.parsing import file
from colonnade.common.parsing.file import load
from colonnade_lab.comparison.plan import jobs as compared
from colonnade_lab.comparison.plan import read_plan
from colonnade_lab.papers.papers import chosen
from colonnade_lab.papers.results import jobs

ODD = AdagradConfig(lr=0.0123)
HEADLESS = ("vimadmm_j", "fdml", "linear_admm")  # whose server has no head that steps
WITHOUT_STEPS = ("linear_admm", "centralized", "local")  # whose parties do not step
OWN_HEADS = ("vimadmm_j", "fdml", "vfedmh", "agg_vfl")
WITH_MLP_HEADS = [name for name in NAMES if CONTRACTS[name].config.defaults.joint["name"] != "linear"]
CONSTANTS = {
    "vimadmm": {"rho", "tau"}, "vimadmm_j": {"rho", "tau", "damping"}, "linear_admm": {"rho", "damping"},
    "fedvs": {"data_bits", "weight_bits"},
}  # fmt: skip


def runs() -> Iterator[tuple[Path, tuple[str, ...]]]:
    papers = [pair for quick in (False, True) for pair in chosen("", quick=quick)]
    plan = read_plan()
    for job in (*jobs(papers, 1), *compared(plan, tuple(plan.protocols), 1)):
        yield job.run.path, job.sets


def used(config: dict[str, Any], name: str) -> Iterator[Any]:
    """The optimisers that a run steps with, and the server's head."""
    server, parties = config["server"], config["parties"].values()
    yield from (party["optimiser"] for party in parties if name not in WITHOUT_STEPS)
    yield from (party["head_optimiser"] for party in parties if name in OWN_HEADS)
    if name not in HEADLESS:
        yield server["optimiser"]
    if server.get("active"):
        yield server["active"]["optimiser"]
    if name in WITH_MLP_HEADS:
        yield server["head"]


def test_no_run_of_the_papers_depends_on_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Defaults(ODD, ODD, ODD, joint={"name": "mlp", "hidden": 77})
    monkeypatch.setattr(file, "for_task", lambda _defaults, _task: odd)
    seen = 0
    for path, sets in runs():
        config = load(path, sets)
        protocol = config.federation.protocol
        kept = json.loads(config.model_dump_json())
        found = [section for section in used(kept, protocol.name) if section.get("lr") == ODD.lr]
        found += [section for section in used(kept, protocol.name) if section.get("hidden") == 77]
        assert not found, (path, sets)
        assert CONSTANTS.get(protocol.name, set()) <= protocol.model_fields_set, (path, sets)
        seen += 1
    assert seen > 200
