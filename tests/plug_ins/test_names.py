"""Names of plug-ins: taken ones, the list of all, and the commands on protocols."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.cli.read.protocols import GROUPS, list_all, list_plug_ins, show
from colonnade.common.config.data.sources import DATA_MODELS, SOURCES
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import MODELS
from colonnade.common.config.outside import OUTSIDE_LOSSES, OUTSIDE_METRICS
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.models import build
from colonnade.common.parsing.file import parse
from colonnade.reports.console import screen
from tests.support.federation import federate, tree
from tests.support.packages import Packages

SIGNS = (Path(__file__).parents[2] / "examples" / "plugin" / "colonnade_signs.py").read_text()


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen.out, "_width", 240)


def named(key: str, value: object) -> object:
    made = tree({"name": "split"}, rounds=1, epochs=0)
    *sections, leaf = key.split(".")
    node = made
    for section in sections:
        node = node[section]
    node[leaf] = value
    return parse(made)


CLASHES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "sources": ("sklearn", "source", lambda: named("every_party.data.source", "sklearn")),
    "models": ("mlp", "model", lambda: named("every_party.model", "mlp")),
    "protocols": ("split", "protocol", lambda: named("federation.protocol", "split")),
}


@pytest.mark.parametrize("group", CLASHES)
def test_a_built_in_name_is_refused_where_it_is_used(packages: Packages, group: str) -> None:
    name, what, use = CLASHES[group]
    packages.install("greedy", group, {name: "greedy_module"}, "import nowhere_at_all")
    with pytest.raises(ConfigError, match=rf"^greedy 1.0 registers a {what} '{name}', a name that is taken by Colon"):
        use()


@pytest.mark.parametrize("group", ["sources", "models", "losses", "metrics"])
def test_a_taken_name_affects_no_run_without_it(packages: Packages, group: str) -> None:
    name = {"sources": "csv", "models": "lenet", "losses": "squared", "metrics": "auc"}[group]
    packages.install("greedy", group, {name: "greedy_module"}, "import nowhere_at_all")
    assert federate(parse(tree({"name": "split"}, rounds=1, epochs=0))).server.metrics["test_auc"] > 0


@pytest.mark.parametrize(
    ("group", "use"),
    [
        ("sources", lambda: named("every_party.data", {"source": "both"})),
        ("models", lambda: named("every_party.model", "both")),
        ("losses", lambda: named("federation.loss", "both")),
        ("metrics", lambda: named("server.extra_metrics", ["both"])),
        ("protocols", lambda: named("federation.protocol", "both")),
    ],
)
def test_two_packages_of_one_name_are_refused_where_it_is_used(
    packages: Packages, group: str, use: Callable[[], object]
) -> None:
    for package in ("one", "two"):
        packages.install(package, group, {"both": f"{package}_module"}, "both = print")
    with pytest.raises(ConfigError, match=r"^(one|two) 1.0 registers a \w+ 'both', a name that is taken by (one|two)"):
        use()
    assert federate(parse(tree({"name": "split"}, rounds=1, epochs=0)))


def test_the_names_of_all_built_in_parts_are_taken() -> None:
    assert set(SOURCES.taken) == {word for model in DATA_MODELS for word in literals(model, "source")}
    towers, heads = (build.ModelConfig, build.HeadConfig)
    assert set(MODELS.taken) >= {word for union in (towers, heads) for word in tags(union)}
    outcome = federate(parse(tree({"name": "split"}, rounds=1, epochs=0)))
    assert {key.removeprefix("test_") for key in outcome.server.metrics if key.startswith("test_")} <= set(
        OUTSIDE_METRICS.taken
    )
    assert set(OUTSIDE_LOSSES.taken) == {"cross_entropy", "squared", "logistic"}


def literals(model: type, field: str) -> tuple[str, ...]:
    return model.model_fields[field].annotation.__args__  # type: ignore[attr-defined, no-any-return]


def tags(union: object) -> set[str]:
    found = json.dumps(sorted(str(union).split("Tag(tag='")[1:]))
    return {part.split("'")[0] for part in json.loads(found)} - {"outside"}


def test_the_list_names_broken_and_ambiguous_ones_and_imports_none(
    packages: Packages, capsys: pytest.CaptureFixture[str]
) -> None:
    list_plug_ins()
    assert "no plug-in is installed" in capsys.readouterr().out
    packages.install("colonnade-broken", "losses", {"broken": "broken_module:loss"}, "raise SystemExit(3)", "2.5")
    packages.install("colonnade-mine", "trackers", {"[red]": "tracker_module"}, "raise SystemExit(3)")
    packages.install("greedy", "models", {"mlp": "greedy_module"}, "raise SystemExit(3)")
    list_plug_ins()
    said = capsys.readouterr().out
    assert "colonnade.losses" in said and "colonnade-broken 2.5" in said and "broken_module:loss" in said
    assert "[red]" in said and "greedy 1.0" in said and "not usable: the name is taken" in said
    assert not {"broken_module", "tracker_module", "greedy_module"} & set(sys.modules)
    assert {plug_ins.group for plug_ins in GROUPS} == {
        f"colonnade.{kind}" for kind in ("protocols", "sources", "models", "losses", "metrics", "trackers")
    }


def test_protocols_lists_an_outside_one_and_a_broken_one(
    packages: Packages, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.install("colonnade-signs", "protocols", {"signs": "colonnade_signs"}, SIGNS)
    packages.install("colonnade-broken", "protocols", {"broken": "broken_module"}, "import nowhere_at_all", "2.5")
    list_all()
    said = " ".join(capsys.readouterr().out.split())
    assert "colonnade-signs 1.0" in said and "Signs: split learning with the gradients' signs" in said
    assert "the protocol broken of colonnade-broken 2.5 cannot be imported" in said
    assert "VAFL" in said


def test_show_prints_an_outside_protocol_once(packages: Packages, capsys: pytest.CaptureFixture[str]) -> None:
    packages.install("colonnade-signs", "protocols", {"signs": "colonnade_signs"}, SIGNS)
    show("signs")
    assert capsys.readouterr().out.count("async def serve(") == 1
    with pytest.raises(InputError, match=r"there is no protocol 'sings' \(did you mean 'signs'\?\)"):
        show("sings")


def test_a_broken_protocol_does_not_spoil_hints_and_messages_of_others(packages: Packages) -> None:
    packages.install("colonnade-broken", "protocols", {"broken": "broken_module"}, "import nowhere_at_all")
    with pytest.raises(ConfigError, match=r"federation.protocol.tua: unknown key"):
        named("federation.protocol", {"name": "fedbcd", "tua": 3})
    with pytest.raises(ConfigError, match=r"federation.participation = 0.5: fedbcd needs every party"):
        parse(tree({"name": "fedbcd"}, participation=0.5))
    assert "broken" in list(CONTRACTS) and FederationConfig.model_fields["loss"].default == ""


def test_a_protocol_that_is_not_installed_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"^federation.protocol.name = 'signs': unknown protocol") as refused:
        named("federation.protocol", "signs")
    assert "install the package that registers it (colonnade.protocols) on this machine" in refused.value.hint
