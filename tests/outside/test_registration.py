"""A protocol of an external package, registered as in docs/adding_a_protocol.md: examples/plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from colonnade.client.protocols import LOCAL, PARTICIPATE
from colonnade.common.contracts.registry import CONTRACTS, NAMES, OUTSIDE
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.server.protocols import ACTIVE, JOINT, SERVE
from colonnade.testing.differences import of_snapshots
from tests.cli.run.test_up import finish
from tests.support import warm
from tests.support.federation import config, federate, tree
from tests.support.outside import EXAMPLE, Install
from tests.support.warm import COLONNADE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding_a_protocol.md"
SIGNS = {"name": "signs", "embedding": 16}
GROWING = '''
class Stumps:
    """An ensemble that grows by one in every round; no torch module."""

    def __init__(self):
        self.cuts = []

    def grow(self, h):
        self.cuts.append((len(self.cuts) % h.shape[1], h.detach().mean(0)))
        return h + sum((h[:, [column]] > cut[column]).float() for column, cut in self.cuts)

    def state(self):
        return {"cuts": self.cuts}

    def restore(self, saved):
        self.cuts = saved["cuts"]


'''


def test_it_is_found_everywhere_and_goes_again(signs: Path) -> None:
    assert list(CONTRACTS) == [*NAMES, "signs"]
    assert CONTRACTS["signs"].title.startswith("Signs")
    for side in (SERVE, PARTICIPATE, JOINT, LOCAL):
        assert "signs" in side and callable(side["signs"])
    assert "signs" not in ACTIVE


def test_it_trains_on_the_virtual_clock(signs: Path) -> None:
    outcome = federate(config(SIGNS, "federation.epochs=20"))
    assert outcome.server.metrics["test_accuracy"] > 0.8


def test_a_contract_of_version_0_2_says_the_same_with_a_warning(install: Install) -> None:
    new, old = 'exchange=Exchange("embeddings", "gradients")', 'any_loss=True, embeddings=True, predicts="embedding"'
    install("signs", "colonnade_signs", EXAMPLE.read_text().replace(new, old))
    with pytest.warns(DeprecationWarning, match="any_loss, embeddings, predicts: a Contract says this by exchange"):
        exchange = CONTRACTS["signs"].exchange
    assert exchange.embeddings and exchange.any_loss and not exchange.gradients
    with pytest.warns(DeprecationWarning, match="predicts: a Contract says this by"):
        assert CONTRACTS["signs"].predicts == "embedding"
    assert replace(CONTRACTS["signs"], title="Others").exchange is exchange


def test_a_protocols_own_objects_are_resumed(install: Install) -> None:
    """A run that is killed after round 2 and resumed ends with the same trees, to the last bit, as one left alone."""
    source = EXAMPLE.read_text().replace("async def participate", f"{GROWING.lstrip()}async def participate")
    source = source.replace(
        "    model = ctx.model(", '    trees = ctx.state.keep("trees", Stumps)\n    model = ctx.model('
    )
    install("signs", "colonnade_signs", source.replace("ctx.release(h,", "ctx.release(trees.grow(h),"))
    cfg = config(SIGNS, "federation.rounds=4", "federation.epochs=0", "federation.batch=500")
    alone = federate(cfg, save=True)
    resumed = federate(cfg, save=True, start=(2, alone.saved[2]))
    for member, ended in alone.saved[4].items():
        assert not of_snapshots(resumed.saved[4][member], ended)
    assert [len(alone.saved[t]["party1"].values["trees"]["items"][0][1]["list"]) for t in (2, 4)] == [2, 4]


@pytest.mark.processes
def test_it_trains_over_grpc_in_processes_of_their_own(signs: Path, tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(yaml.safe_dump(tree(SIGNS, epochs=1)))
    words = [*COLONNADE, "up", str(path), "--out", str(tmp_path / "run")]
    run = warm.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(signs)},
    )  # fmt: skip
    said = finish(run)
    assert run.returncode == 0, said
    assert '"protocol": "signs"' in (tmp_path / "run" / "summary.json").read_text()


def test_the_page_names_the_group_and_the_example() -> None:
    page = PAGE.read_text()
    assert f'[project.entry-points."{OUTSIDE.group}"]\nsigns = "colonnade_signs"' in page and "examples/plugin" in page


@pytest.mark.parametrize("name", ["split", "local"])
def test_a_name_of_the_house_is_not_given_away(install: Install, name: str) -> None:
    install(name, "colonnade_signs")
    with pytest.raises(ConfigError, match=rf"^colonnade-signs 1.0 registers a protocol '{name}', a name that is taken"):
        config({"name": name})
    assert config({"name": "vafl"}).federation.protocol.name == "vafl"  # does not use it


def test_two_packages_do_not_share_a_name(install: Install) -> None:
    install("signs", "one_signs", package="one")
    install("signs", "two_signs", package="two")
    with pytest.raises(
        ConfigError, match=r"^(one|two) 1.0 registers a protocol 'signs', a name that is taken by (o|t)"
    ):
        parse({"federation": {"protocol": SIGNS}})
    assert config({"name": "split"}).federation.protocol.name == "split"  # does not use it


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_at_all", "the protocol signs of colonnade-signs 1.0 cannot be imported: ModuleNotFound"),
        ("CONTRACT = 1", "the protocol signs of colonnade-signs 1.0: colonnade_signs has no serve"),
        ("serve = participate = CONTRACT = None", "the protocol signs of colonnade-signs 1.0: CONTRACT is no Contract"),
        ("from colonnade.common.protocols.split import CONTRACT\nserve = participate = print",
         "colonnade-signs 1.0 registers 'signs', and its contract says 'split'"),
    ],
    ids=["cannot be imported", "no halves", "no contract", "another name"],
)  # fmt: skip
def test_a_package_that_is_no_protocol_is_refused_with_its_name(install: Install, source: str, said: str) -> None:
    install("signs", "colonnade_signs", source)
    with pytest.raises(ConfigError) as refused:
        config(SIGNS)
    assert str(refused.value).startswith(said)


def test_a_broken_outside_package_does_not_affect_other_protocols(install: Install) -> None:
    install("signs", "colonnade_signs", "import nowhere_at_all")
    assert config({"name": "split"}).federation.protocol.name == "split"


@pytest.mark.parametrize("side", ["common", "server", "client"])
def test_the_houses_list_has_every_module_once(side: str) -> None:
    found = {path.stem for path in (ROOT / side / "protocols").glob("*.py")} - {"__init__"}
    assert sorted(NAMES) == sorted(found)


def test_no_protocol_is_imported_but_the_one_that_is_asked_for() -> None:
    """Nor scipy's convolution, a second of imports, by privacy's accounting."""
    look = (
        "import sys, yaml; from colonnade.common.parsing.file import parse; "
        "from colonnade.server.member import summary; "
        "from colonnade.server.protocols import SERVE; SERVE['split']; demo = yaml.safe_load(open(sys.argv[1])); "
        "demo['federation']['protocol'] = {'name': 'split'}; parse(demo); "
        "print(*sorted(m for m in sys.modules if '.protocols.' in m or m == 'scipy.signal'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, "experiments/demo.yaml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["colonnade.common.protocols.split", "colonnade.server.protocols.split"]
