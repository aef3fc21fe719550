"""The compose files against each other: the settings that every member needs are in every service."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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
