"""The dashboard queries metrics that members export, and its services are not exposed to others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.observability.telemetry import Event
from colonnade.common.version import VERSION
from tests.support.watched import Watched, config, read

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "metrics/grafana/dashboards/colonnade.json").read_text())
OVERLAY: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.metrics.yml").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Metrics of the server and a party late in a run with every feature, by the job that scrapes them."""
    found: dict[str, str] = {}

    def look(run: Watched, event: Event) -> None:
        if event["kind"] == "round" and event["round"] == 11:
            found["server"], found["parties"] = (
                read(run.endpoint(name, "metrics")) for name in (SERVER, run.config.federation.names[0])
            )

    private = {"clip": 1.0, "noise_multiplier": 50.0, "epsilon": 8.0}
    made = config({"name": "vimadmm", "embedding": 16, "tau": 1}, privacy=private, checkpoint={"rounds": 4})
    Watched(made, tmp_path_factory.mktemp("run"), look).run()
    return found


def families(text: str) -> Iterator[Metric]:
    return text_string_to_metric_families(text)


def labels_by_name(text: str) -> dict[str, set[str]]:
    return {s.name: set(s.labels) for family in families(text) for s in family.samples}


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{t}-{x['refId']}" for t, x in TARGETS])
def test_every_query_uses_existing_metrics(shown: dict[str, str], title: str, target: dict[str, Any]) -> None:
    """Every name and every label, at every job that the query is about."""
    jobs = re.findall(r'job=~?"([a-z|]+)"', target["expr"])
    names = re.findall(r"\b(?:colonnade|process)_\w+", target["expr"])
    asked = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    for by in re.findall(r"by \(([^)]*)\)", target["expr"]):
        asked |= {label.strip() for label in by.split(",")}
    assert len(jobs) == len(names) > 0
    for job, name in zip(jobs, names, strict=True):
        for one in job.split("|"):
            there = labels_by_name(shown[one])
            assert name in there and asked <= there[name] | {"instance"}, (one, name)


def test_every_panel_can_be_read() -> None:
    kinds = {panel["type"] for panel in PANELS}
    assert kinds == {"timeseries", "stat", "state-timeline"}
    assert len({panel["title"] for panel in PANELS}) == len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] for target in panel["targets"])


def test_no_two_panels_overlap() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


@pytest.mark.parametrize("job", ["server", "parties"])
def test_names_follow_the_conventions(shown: dict[str, str], job: str) -> None:
    """prometheus.io/docs/practices/naming: a prefix, base units, `_total` for counters and for nothing else."""
    own = [family for family in families(shown[job]) if not family.name.startswith("process_")]
    assert len(own) >= 10
    for family in own:
        assert re.fullmatch(r"colonnade(_[a-z]+)+", family.name) and family.documentation.endswith(".")
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent|minutes|count|sum|total)$", family.name)
        assert {s.name.endswith("_total") for s in family.samples} == {family.type == "counter"}


def test_every_metric_is_documented(shown: dict[str, str]) -> None:
    documented = set(re.findall(r"`(colonnade_\w+)`", (DEPLOY.parent / "docs/watching.md").read_text()))
    there = {
        family.name + "_total" * (family.type == "counter") for text in shown.values() for family in families(text)
    }
    of_regression = {"colonnade_rmse"}  # in the place of an accuracy
    assert {name for name in there if name.startswith("colonnade_")} == documented - of_regression


def test_labels_name_members_and_kinds_and_nothing_else(shown: dict[str, str]) -> None:
    parties = {f"party{index}" for index in range(1, 5)}
    allowed = {
        "party": parties, "member": {SERVER, *parties}, "direction": {"up", "down"}, "queue": {"unsent", "unread"},
        "kind": {"Embedding", "Evaluation", "Update"}, "part": {"training", "validation", "test"},
        "phase": {"computing", "waiting", "evaluation", "checkpoint"}, "adjacency": {"replace"},
        "protocol": {"vimadmm"}, "federation": {"test"}, "version": {VERSION},
    }  # fmt: skip
    for text in shown.values():
        for sample in (s for family in families(text) for s in family.samples):
            assert all(said in allowed[label] for label, said in sample.labels.items()), sample


@promtool
@pytest.mark.parametrize("job", ["server", "parties"])
def test_promtool_finds_nothing_wrong_with_the_metrics(shown: dict[str, str], job: str) -> None:
    ran = subprocess.run(
        ["promtool", "check", "metrics"], check=False, input=shown[job], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@promtool
def test_promtool_finds_nothing_wrong_with_the_configuration() -> None:
    file = DEPLOY / "metrics/prometheus.yml"
    ran = subprocess.run(["promtool", "check", "config", file], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@promtool
@pytest.mark.parametrize("expression", sorted({target["expr"] for _, target in TARGETS}))
def test_promtool_can_parse_every_query(tmp_path: Path, expression: str) -> None:
    rules = tmp_path / "rules.yml"
    rule = {"record": "a:b", "expr": expression.replace("$__rate_interval", "8s")}
    rules.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": [rule]}]}))
    ran = subprocess.run(["promtool", "check", "rules", rules], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_member_exports_the_queried_metrics() -> None:
    for name in ("server", *(f"party{index}" for index in range(1, 5))):
        assert OVERLAY["services"].pop(name) == {"environment": {"COLONNADE_METRICS": "0.0.0.0:9400"}}
    assert OVERLAY["services"].keys() == {"prometheus", "grafana"}


def test_every_member_is_read_and_called_by_its_name() -> None:
    prometheus = yaml.safe_load((DEPLOY / "metrics/prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    assert jobs["server"]["static_configs"][0]["targets"] == ["server:9400"]
    assert jobs["parties"]["static_configs"][0]["targets"] == [f"party{index}:9400" for index in range(1, 5)]
    for job in jobs.values():
        (renamed,) = job["relabel_configs"]
        matched = re.fullmatch(renamed["regex"], "party1:9400")
        assert renamed["target_label"] == "instance" and matched is not None and matched[1] == "party1"


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_a_service_beside_the_federation_is_pinned_and_bound(name: str) -> None:
    service = OVERLAY["services"][name]
    assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    for mount in service["volumes"]:
        source, _, mode = mount.partition(":")
        if source.startswith("./"):
            assert (DEPLOY.parent / source).exists() and mode.endswith(":ro")
        else:
            assert source in OVERLAY["volumes"]


def test_grafana_finds_its_provisioned_files() -> None:
    grafana = DEPLOY / "metrics/grafana"
    mounts = [mount.split(":") for mount in OVERLAY["services"]["grafana"]["volumes"]]
    inside = {Path(source).name: target for source, target, *_ in mounts}
    (provider,) = yaml.safe_load((grafana / "provisioning/dashboards/colonnade.yml").read_text())["providers"]
    (source,) = yaml.safe_load((grafana / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert provider["options"]["path"] == inside["dashboards"]
    assert {target["datasource"]["uid"] for _, target in TARGETS} == {source["uid"]}
    assert source["url"] == "http://prometheus:9090" and "prometheus" in OVERLAY["services"]
    home = OVERLAY["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{inside['dashboards']}/colonnade.json"
