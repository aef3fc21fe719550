"""`colonnade explain` against the same numbers taken from checkpoints and models by hand."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score, balanced_accuracy_score, r2_score, roc_auc_score
from torch import Tensor

from colonnade import simulate
from colonnade.client.protocols import LOCAL
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.rows import generator
from colonnade.common.data.sources import load_features, prepare
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import load, parse
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.run_folder import STAMP
from colonnade.reports.explanation import trained as opening
from colonnade.reports.explanation.findings import Findings, PartyFindings, interval, measure, metric_of, resampled
from colonnade.reports.explanation.trained import open_run
from colonnade.reports.explanation.words import headline, numbers, second_opinion, sentences
from colonnade.reports.explanation.write import Keep, flatten_map, reduced
from colonnade.reports.html.charts import Axis, Bar, Trend, line_chart, row_chart
from colonnade.server.protocols import ACTIVE, JOINT
from colonnade.server.training.fusion.active import load_columns
from colonnade.simulation.federation import Outcome
from tests.cli.data.test_wrong_input import run
from tests.cli.read.reports import Page
from tests.cli.run.test_up import summary_of
from tests.cli.run.test_up import write as write_file
from tests.support.federation import config, federate
from tests.support.household import colonnade

pytestmark = pytest.mark.slow

PROTOCOLS = {"split": {}, "vimadmm": {"tau": 5}, "vimadmm_j": {"tau": 5}}
RUN = "0123456789abcdef"


def home(folder: Path, member: str) -> Path:
    return folder if member == SERVER else folder / "parties" / member


def leave_behind(folder: Path, cfg: Config, outcome: Outcome, *rounds: int) -> Path:
    """A folder as `up` leaves it: the newest checkpoints of every member, and the end of the run."""
    folder.mkdir(parents=True)
    (folder / "launch.json").write_text(json.dumps({"base": str(folder)}))
    (folder / "run.json").write_text(json.dumps({"run": RUN, **STAMP}))
    summary = {"status": "completed", "rounds": outcome.server.round, "metrics": outcome.server.metrics}
    (folder / "summary.json").write_text(json.dumps(summary))
    tree = cfg.model_dump(mode="json", exclude_none=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    for round in rounds or (outcome.server.round,):
        for member, snapshot in outcome.saved[round].items():
            owner = Owner(member, RUN, cfg.federation.lasting_hashes())
            Checkpoints(home(folder, member) / "checkpoints").save(round, snapshot, owner)
    federation, schedule = cfg.federation, outcome.server.schedule
    for name, party in cfg.parties.items():
        features, kept = (
            load_features(party.data, federation.party_index(name), folder),
            EncoderFile(home(folder, name), begun=False),
        )
        typed = federation.protocol.typed
        prepare(party.data, features, schedule.partition.train, federation.seed, name, kept, typed=typed)
    rows = len(outcome.server.labels)
    assert cfg.server is not None
    load_columns(federation, cfg.server, schedule, folder, rows, kept=EncoderFile(folder, begun=False))
    return folder


Case = tuple[Path, Outcome]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    """A run of every protocol, in one event loop, as a folder and in memory."""
    cases = {}
    for name, more in PROTOCOLS.items():
        cfg = config({"name": name, "embedding": 8, **more}, "federation.rounds=12", "federation.epochs=0")
        outcome = federate(cfg, save=True)
        cases[name] = leave_behind(tmp_path_factory.mktemp(name) / "run", cfg, outcome, 11, 12), outcome
    yield cases


@pytest.fixture
def copied(finished: dict[str, Case], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished["vimadmm"][0], tmp_path / "copy"))


def saved(folder: Path, member: str) -> dict[str, Tensor]:
    return load_file(home(folder, member) / "checkpoints" / "round-00000012.safetensors")


def by_hand(folder: Path, outcome: Outcome, features: dict[str, Tensor], without: str = "") -> float:
    """Accuracy on the test rows from the checkpoints' tensors alone: no model's code and no protocol's."""
    total: Tensor | float = 0.0
    joint = saved(folder, SERVER)
    for index, (name, x) in enumerate(features.items()):
        own = saved(folder, name)
        h = x.flatten(1)
        for layer in ("1", "3"):
            h = (h @ own[f"model.{layer}.weight"].T + own[f"model.{layer}.bias"]).relu()
        if "heads" in joint:
            head = joint["heads"][index]
        elif "head" in own:
            head = own["head"]
        else:
            head = joint["head.weight"][:, 8 * index : 8 * index + 8].T
        part = h @ head
        total = total + (part.mean(0, keepdim=True) if name == without else part)
    assert isinstance(total, Tensor)
    return (total.argmax(1) == outcome.server.labels[outcome.server.schedule.partition.test]).double().mean().item()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_accuracies_are_those_of_the_checkpoints(finished: dict[str, Case], protocol: str) -> None:
    folder, outcome = finished[protocol]
    found = measure(open_run(folder), 2.0)
    clean = {name: ctx.features[outcome.server.schedule.partition.test] for name, ctx in outcome.clients.items()}
    assert found.clean == pytest.approx(outcome.server.metrics["test_accuracy"])
    assert found.clean == pytest.approx(by_hand(folder, outcome, clean))
    for party in found.parties:
        x = clean[party.name]
        noise = torch.cat([  # drawn block by block, as rows are read
            torch.randn(len(block), *x.shape[1:], generator=draws) for draws in [generator("explain", 0, party.name)]
            for block in x.split(256)
        ])  # fmt: skip
        assert party.missing == pytest.approx(by_hand(folder, outcome, clean, without=party.name))
        assert party.noised == pytest.approx(by_hand(folder, outcome, {**clean, party.name: x + 2.0 * noise}))
    assert any(party.missing < found.clean - 0.02 for party in found.parties)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_norms_are_those_of_the_checkpoints_heads(finished: dict[str, Case], protocol: str) -> None:
    folder, outcome = finished[protocol]
    said = numbers(opened := open_run(folder), measure(opened, 1.0))
    joint, expected = saved(folder, SERVER), {}
    for index, name in enumerate(outcome.clients):
        if protocol == "vimadmm_j":
            head = saved(folder, name)["head"]
        else:
            head = (
                joint["heads"][index] if protocol == "vimadmm" else joint["head.weight"][:, 8 * index : 8 * index + 8]
            )
        expected[name] = head.square().sum().sqrt().item()
    assert {name: party["norm"] for name, party in said["parties"].items()} == pytest.approx(expected)
    lost = {name: party["drop_missing"] for name, party in said["parties"].items()}
    assert said["ranked_by"] == "missing" and [lost[name] for name in said["ranked"]] == sorted(lost.values())[::-1]
    assert [said["parties"][name]["rank"] for name in said["ranked"]] == [1, 2, 3, 4]


def test_the_first_norms_are_those_before_any_round(tmp_path: Path) -> None:
    """Heads that never learn, with no weight decay, keep their norm: every ratio is 1."""
    cfg = config({"name": "vimadmm", "embedding": 8, "tau": 1}, "federation.rounds=2", "federation.epochs=0",
                 "server.optimiser={name: sgd, lr: 1.0e-30, weight_decay: 0}")  # fmt: skip
    found = measure(open_run(leave_behind(tmp_path / "run", cfg, federate(cfg, save=True))), 1.0)
    assert [party.growth for party in found.parties] == pytest.approx([1.0] * 4, abs=1e-12)


def test_a_head_that_is_not_linear_in_embeddings_has_no_norm(tmp_path: Path) -> None:
    (tmp_path / "head.py").write_text(
        "import torch\n"
        "class Head(torch.nn.Module):\n"
        "    def __init__(self, inputs, classes):\n"
        "        super().__init__()\n"
        "        self.scale, self.out = torch.nn.Parameter(torch.ones(inputs)), torch.nn.Linear(inputs // 2, classes)\n"
        "    def forward(self, h):\n"
        "        return self.out((h * self.scale).unflatten(1, (-1, 2)).sum(2))\n"
    )
    own = tmp_path / "head.py:Head"
    cfg = config({"name": "split", "embedding": 8}, "federation.rounds=8", "federation.epochs=0",
                 f"server.head={{file: '{own}'}}")  # fmt: skip
    opened = open_run(leave_behind(tmp_path / "run", cfg, federate(cfg, save=True)))
    said = numbers(opened, measure(opened, 1.0))
    assert said["ranked_by"] == "missing" and said["parties"]["party1"]["norm"] is None
    losses = [said["parties"][name]["drop_missing"] for name in said["ranked"]]
    assert losses == sorted(losses, reverse=True)


def test_a_party_with_noise_as_data_falls_in_rank(tmp_path: Path) -> None:
    ranks = []
    for extra in ((), ("parties.party2.data.noise={std: 10}",)):
        cfg = config({"name": "vimadmm", "embedding": 16, "tau": 5}, "federation.epochs=4", *extra)
        opened = open_run(leave_behind(tmp_path / f"run{len(extra)}", cfg, federate(cfg, save=True)))
        ranks.append(numbers(opened, measure(opened, 1.0))["parties"]["party2"]["rank"])
    assert ranks[0] <= 2 and ranks[1] == 4


def test_the_command_writes_a_page_that_needs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows, out = "federation.rows={test: 0.05}", tmp_path / "page"  # few: drawing the maps takes longest
    cfg = config({"name": "vimadmm", "embedding": 8}, "federation.rounds=12", "federation.epochs=0", rows)
    left = leave_behind(tmp_path / "run", cfg, federate(cfg, save=True))
    code, said = run(monkeypatch, capfd, "explain", left, "--out", out, "--keep", "top:50%")
    assert code == 0, said
    text, result = (out / "explain.html").read_text(), json.loads((out / "explain.json").read_text())
    page = Page(text)
    assert not any({"src", "href"} & set(attrs) or tag == "script" for tag, attrs in page.tags)
    assert result["said"] in page.words and "opened on one machine" in page.words and "are no ranking" in page.words
    dots = sum(str(attrs["d"]).count("M") for tag, attrs in page.tags if attrs.get("class", "").endswith(" dots"))  # type: ignore[union-attr]
    assert dots == 3 * result["rows"]
    lost = {name: 100 * party["drop_missing"] for name, party in result["parties"].items()}
    chart = [row for row in page.rows if row and row[0] in lost][: len(lost)]
    assert [row[0] for row in chart] == result["ranked"]
    assert [float(row[2]) for row in chart] == pytest.approx([lost[name] for name in result["ranked"]], abs=6e-3)
    for name, party in result["parties"].items():
        low, high = party["interval"]
        assert low <= party["drop_missing"] <= high and party["told"] == (low > 0)
        assert party["bytes"] is None or name in page.words
    assert result["round"] == result["rounds"] == 12 and result["value"] == pytest.approx(result["reported"])
    kept = load(out / "keep-top-2.yaml")
    assert set(kept.federation.names) == set(result["ranked"][:2])


def test_kept_parties_keep_their_columns(finished: dict[str, Case], tmp_path: Path) -> None:
    folder, _ = finished["vimadmm"]
    cfg = load(folder / "config.yaml")
    names = ("party2", "party4")
    kept = parse(reduced(cfg, folder, names))
    for index, name in enumerate(names):
        before = load_features(cfg.parties[name].data, PartyIndex(cfg.federation.names.index(name), 4), folder)
        after = load_features(kept.parties[name].data, PartyIndex(index, 2), folder)
        assert after.names == before.names and torch.equal(after.values, before.values)


def test_a_kept_configuration_finds_its_files_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "bank.csv").write_text("a,b\n1,2\n")
    data = {"source": "csv", "path": "bank.csv", "noise": {"std": 1.0}}
    extra = (f"every_party.data={json.dumps(data)}", "parties.party1.model={file: './tower.py:Tower'}")
    cfg = config({"name": "split"}, *extra, "federation.quorum={need: 3}")
    (tmp_path / "tower.py").write_text("")
    tree = reduced(cfg, tmp_path, ["party1", "party3"])
    assert tree["parties"]["party1"]["data"]["path"] == str(tmp_path / "bank.csv")
    assert tree["parties"]["party1"]["data"]["noise"] == {"std": 1.0, "rows": "all"}
    assert tree["parties"]["party1"]["model"]["file"] == f"{tmp_path / 'tower.py'}:Tower"
    assert tree["federation"]["quorum"]["need"] == 2 and set(tree["parties"]) == {"party1", "party3"}


def test_shares_of_parties() -> None:
    ranked = [f"party{number}" for number in range(14)]
    assert Keep.read("top:50%").choose(ranked) == tuple(ranked[:7])
    assert Keep.read("bottom:20%").choose(ranked) == tuple(ranked[-3:])
    assert Keep.read("top:1%").choose(ranked) == ("party0",)
    assert Keep.read("bottom:4").choose(ranked) == tuple(ranked[-4:])
    for wrong in ("top", "top:0", "top:0%", "top:101%", "middle:3", "top:-1", "top:1.5", "50%", ""):
        with pytest.raises(InputError, match="expected a share"):
            Keep.read(wrong)
    with pytest.raises(InputError, match="there are 14 parties"):
        Keep.read("top:15").choose(ranked)


def test_use_of_an_older_checkpoint_is_reported(copied: Path) -> None:
    """One member has not saved the last round: the round before is the newest that all hold."""
    for file in home(copied, "party3").glob("checkpoints/round-00000012.*"):
        file.unlink()
    opened = open_run(copied)
    assert opened.round == 11
    assert any("is of round 11" in sentence for sentence in sentences(opened, measure(opened, 1.0)))


def test_both_sides_of_a_protocol_can_be_opened() -> None:
    assert set(JOINT) | set(ACTIVE) == set(LOCAL) <= set(CONTRACTS) and not set(JOINT) & set(ACTIVE)


def test_maps_of_equal_embeddings() -> None:
    """A party that sees black pixels only has one embedding for all rows, and still a map."""
    assert torch.isfinite(flatten_map(torch.ones(20, 5), 0)).all()
    classes = torch.arange(60) % 2
    apart = flatten_map(torch.randn(60, 5, generator=torch.Generator().manual_seed(0)) + 50 * classes[:, None], 0)
    middles = [apart[classes == number].mean(0) for number in (0, 1)]
    assert all((apart[classes == n] - middles[n]).norm(dim=1).max() < (middles[0] - middles[1]).norm() for n in (0, 1))


def test_curves_keep_to_their_span_and_end_at_the_edges() -> None:
    series = {"<a>": [(0.0, 0.5), (4.0, 1.0)], "b": [(1.0, 0.2), (2.0, 0.0)]}
    drawn = [Trend(name, points, number) for number, (name, points) in enumerate(series.items(), 1)]
    across, up = Axis("", lambda x: f"{x:.0f} s"), Axis("", lambda y: f"{y:.1f}", span=(0.2, 1.0))
    picture = line_chart(drawn, across, up, title="<a>", size=(400, 200))
    lines = re.findall(r'<polyline class="line s." points="([^"]*)"', picture)
    points = [[tuple(map(float, point.split(","))) for point in line.split()] for line in lines]
    assert [len(line) for line in points] == [2, 1]  # 0.0 is out of the span
    (left, _), (right, top) = points[0]
    assert left < points[1][0][0] < right <= 400 and top < points[1][0][1] < 200
    assert "<a>" not in picture and "&lt;a&gt;" in picture and ">4 s<" in picture


def test_bars_begin_at_0_and_names_are_escaped() -> None:
    bars = [Bar("<a>", 2.0, "2", 1.5, 2.5), Bar("b", -1.0, "-1")]
    picture = row_chart(bars, Axis("", str, span=(-1.5, 2.5)), caption="lost")
    assert "<a>" not in picture and "&lt;a&gt;" in picture
    (first, wide), (second, half) = (
        (float(x), float(width)) for x, width in re.findall(r'<rect [^>]*x="([\d.]+)%" width="([\d.]+)%"', picture)
    )
    assert first == pytest.approx(second + half) and wide == pytest.approx(2 * half)


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "auc", "r2"])
def test_a_resample_is_measured_as_if_its_rows_were_repeated(name: str) -> None:
    draws = np.random.default_rng(0)
    counts, classes = draws.poisson(1, 80), 2 if name == "auc" else 3
    said, truth = draws.dirichlet(np.ones(classes), 80).round(2), draws.integers(0, classes, 80)
    if name == "r2":
        said, truth = 1e4 + draws.normal(size=(80, 2)), 1e4 + draws.normal(size=(80, 2))
    rows = np.repeat(np.arange(80), counts)
    measures = {
        "accuracy": lambda y, p: accuracy_score(y, p.argmax(1)), "auc": lambda y, p: roc_auc_score(y, p[:, 1]),
        "balanced_accuracy": lambda y, p: balanced_accuracy_score(y, p.argmax(1)), "r2": r2_score,
    }  # fmt: skip
    (found,) = metric_of(name, said, truth)(counts[None].astype(float))
    assert found == pytest.approx(measures[name](truth[rows], said[rows]))


def test_an_interval_of_a_difference_is_that_of_paired_rows() -> None:
    """1.96 standard errors of the mean difference: much less than of two independent accuracies."""
    draws = np.random.default_rng(1)
    with_it = draws.random(2000) < 0.9
    without = with_it & (draws.random(2000) < 0.95)
    found = [metric_of("accuracy", np.eye(2)[hits.astype(int)], np.ones(2000)) for hits in (with_it, without)]
    twice = [resampled([[one] for one in found], 2000, 7) for _ in range(2)]
    assert np.array_equal(*twice)
    low, high = interval(twice[0][0] - twice[0][1])
    each = with_it.astype(float) - without
    error = 1.96 * each.std() / np.sqrt(2000)
    assert (low, high) == (
        pytest.approx(each.mean() - error, abs=error / 8),
        pytest.approx(each.mean() + error, abs=error / 8),
    )


def worth(**parties: tuple[float, int]) -> Findings:
    """Losses of parties that are known to a hundredth, and bytes that they sent."""
    spread = np.linspace(-0.01, 0.01, 1000)
    made = [
        PartyFindings(name, 1.0, 1.0, 0.9, 0.9 - lost, 0.0, lost + spread, sent=sent)
        for name, (lost, sent) in parties.items()
    ]
    return Findings("test", "accuracy", torch.zeros(50), {}, 1.0, 0.9, tuple(made), 0.9 + spread)


def test_the_headline_says_who_is_worth_the_cost_and_what_is_chance() -> None:
    said = headline(worth(bank=(0.3, 10), shop=(0.1, 10), post=(0.005, 20)))
    assert said.startswith("bank is worth most: without it the accuracy falls from 90.00% to 60.00%, for 25% of what")
    assert "post (with 50% of the bytes) adds nothing told from chance" in said and "shop" not in said
    assert "shop gives most for its bytes" in headline(worth(bank=(0.3, 100), shop=(0.2, 10)))
    alike = worth(bank=(0.3, 1), shop=(0.3, 1))
    tied = replace(alike, parties=(alike.parties[0], replace(alike.parties[1], lost=alike.parties[1].lost[::-1])))
    assert "(shop cannot be told from it)" in headline(tied)
    assert headline(worth(bank=(0.0, 1), shop=(0.001, 1))).startswith("No party's loss can be told from chance")


def test_whether_the_heads_agree_is_said() -> None:
    found = worth(a=(0.4, 1), b=(0.3, 1), c=(0.2, 1), d=(0.1, 1))
    grown = [replace(party, norm=2.0 - place / 10) for place, party in enumerate(found.parties)]
    for parties, agrees in ((grown, True), ([replace(p, norm=4 - p.norm) for p in grown], False)):  # type: ignore[operator]
        title, verdict, _ = second_opinion(replace(found, parties=tuple(parties))) or ("", None, "")
        assert title == "Growth of the heads' norms" and verdict is agrees


def findings(*noised: float) -> Findings:
    parties = tuple(PartyFindings(str(n), 2.0, 1.0, value, value, 0.0, np.zeros(1)) for n, value in enumerate(noised))
    return Findings("test", "accuracy", torch.zeros(1), {}, 1.0, 1.0, parties, np.zeros(1))


def test_ties_unmeasured_and_unneeded_parties() -> None:
    """Of equal losses the larger cross-entropy is first; what cannot be measured is last; no gain is an importance."""
    values = [(0.5, 1.0), (math.nan, 9.0), (0.5, 2.0), (0.2, 0.1)]
    parties = [PartyFindings(str(n), None, None, 0.9, *each, np.zeros(1)) for n, each in enumerate(values)]
    found = Findings("test", "accuracy", torch.zeros(1), {}, 1.0, 1.0, tuple(parties), np.zeros(1))
    assert [party.name for party in found.ranked] == ["3", "2", "0", "1"] and found.needed
    assert not replace(found, clean=0.4, parties=tuple(parties[:3])).needed


@pytest.mark.parametrize("scale", ["standard", "none"])
def test_a_party_of_mere_noise_is_last_whatever_its_scale(tmp_path: Path, scale: str) -> None:
    """Huge numbers without information. Scaled, their head grows more than that of a party that is needed."""
    draws = np.random.default_rng(0)
    x, y = make_classification(600, 7, n_informative=7, n_redundant=0, shuffle=False, class_sep=1.2, random_state=0)
    keys = [f"c{number}" for number in range(600)]
    columns = {"strong": x[:, :5], "weak": x[:, 5:], "noise": 1000 * draws.normal(3, 1, (600, 6))}
    tables = {
        name: pd.DataFrame({"case": keys, **{f"x{number}": column for number, column in enumerate(own.T)}})
        for name, own in columns.items()
    }
    tree = {
        "federation": {"id": "cases", "protocol": "split", "batch": 64, "epochs": 12, "classes": 2, "stop": "none"},
        "server": {"labels": {"key": "case", "label": "target"}},
        "every_party": {"data": {"key": "case"}}, "parties": {"noise": {"data": {"scale": scale}}},
    }  # fmt: skip
    run = simulate(tree, {"server": pd.DataFrame({"case": keys, "target": y}), **tables}, out=tmp_path / "run")
    table = run.explain().table.to_pylist()
    found = json.loads((tmp_path / "run" / "explain.json").read_text())
    lost = {name: party["drop_missing"] for name, party in found["parties"].items()}
    growth = {name: party["growth"] for name, party in found["parties"].items()}
    assert found["ranked"] == [row["party"] for row in table] == ["strong", "weak", "noise"], lost
    assert found["ranked"] == sorted(lost, key=lambda name: -lost[name]) and lost["strong"] > lost["noise"] + 0.1
    assert (growth["noise"] > growth["weak"]) == (scale == "standard"), growth
    section = run.report().read_text()
    assert f"from most to least: {', '.join(found['ranked'])}." in section
    page = (tmp_path / "run" / "explain.html").read_text()
    assert "strong is worth most" in page and "are no ranking" in page
    told = {name: party["told"] for name, party in found["parties"].items()}
    assert told["strong"] and not told["noise"] and "noise (with" in found["said"]


def test_rank_correlation() -> None:
    four = findings(0.1, 0.2, 0.3, 0.4)  # without the first most is lost
    assert four.agreement([4, 3, 2, 1]) == pytest.approx(1.0) and four.agreement([1, 2, 3, 4]) == pytest.approx(-1.0)
    assert four.agreement([1, 1, 1, 1]) is None and findings(0.1).agreement([1]) is None
    assert findings(0.1, 0.2).agreement([2, 1]) is None  # of two parties it is 1 or -1, whatever they hold


@pytest.mark.parametrize(
    ("spoil", "argv", "message"),
    [
        (shutil.rmtree, (), "holds no run that `up` or `simulate` has begun"),
        (lambda run: (run / "launch.json").unlink(), (), "holds no run that `up` or `simulate` has begun"),
        (lambda run: (run / "summary.json").unlink(), (), "is not at its end end it first: colonnade up --resume"),
        (lambda run: (run / "summary.json").write_text('{"status": "interrupted"}'), (), "is interrupted end it first"),
        (lambda run: (run / "run.json").unlink(), (), "run.json is missing or was altered"),
        (lambda run: shutil.rmtree(run / "parties" / "party2"), (), "holds no whole checkpoint of party2"),
        (lambda run: [f.write_bytes(b"") for f in (run / "checkpoints").glob("*.safetensors")], (), "of server"),
        (lambda run: None, ("--sigma", "0"), "--sigma 0: expected a number above 0"),
        (lambda run: None, ("--sigma", "nan"), "--sigma nan: expected a number above 0"),
        (lambda run: None, ("--keep", "best:3"), "--keep best:3: expected a share of the parties"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_inputs(spoil, argv, message: str, copied: Path, monkeypatch, capfd) -> None:
    spoil(copied)
    code, said = run(monkeypatch, capfd, "explain", copied, *argv)
    assert code == 2 and message in said, said
    assert not (copied / "explain.html").exists() and not (copied / "explain.json").exists()


def test_a_folder_that_cannot_be_written(copied: Path, monkeypatch, capfd, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    code, said = run(monkeypatch, capfd, "explain", copied, "--out", tmp_path / "taken")
    assert code == 4 and "taken cannot be made" in said


def test_a_protocol_that_cannot_be_opened(copied: Path, monkeypatch, capfd) -> None:
    monkeypatch.setattr(opening, "JOINT", {"split": opening.JOINT["split"]})
    code, said = run(monkeypatch, capfd, "explain", copied)
    assert code == 2 and "a run of vimadmm cannot be explained" in said and "there are split" in said


def test_a_run_without_test_rows_uses_validation_or_refuses(tmp_path: Path) -> None:
    for validation in (0.1, 0):
        rows = f"federation.rows={{validation: {validation}, test: 0}}"
        cfg = config({"name": "split", "embedding": 8}, "federation.rounds=2", "federation.epochs=0", rows)
        folder = leave_behind(tmp_path / str(validation), cfg, federate(cfg, save=True))
        if validation:
            assert measure(open_run(folder), 1.0).part == "validation"
        else:
            with pytest.raises(InputError, match="no test and no validation rows"):
                measure(open_run(folder), 1.0)


def test_a_run_and_what_is_kept_of_it(tmp_path: Path) -> None:
    """The command opens what `up` leaves, and `up` runs what --keep writes."""
    few = {"test": 0.05}  # rows: drawing the maps takes longest
    file, out = write_file(tmp_path, {"name": "vimadmm", "embedding": 8}, epochs=1, rows=few), tmp_path / "run"
    for words in (("up", file, "--out", out), ("explain", out, "--keep", "top:3")):
        code, output = colonnade(*words)
        assert code == 0, output
    result = json.loads((out / "explain.json").read_text())
    assert result["value"] == pytest.approx(result["reported"])
    code, output = colonnade("up", out / "keep-top-3.yaml", "--out", tmp_path / "kept")
    assert code == 0, output
    kept = summary_of(tmp_path / "kept")
    assert sorted(kept["parties"]) == sorted(result["ranked"][:3])
