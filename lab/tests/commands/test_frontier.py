"""The frontier: dominance, choice by validation rows, the clock, the plan, and the page from kept results."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from colonnade.common.contracts.registry import NAMES
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import load
from colonnade.launcher.demo import EXPERIMENTS
from colonnade.simulation.federation import Simulation
from colonnade_lab.commands import commands
from colonnade_lab.commands.frontier import show_frontier
from colonnade_lab.frontier.plan import DELAYS, FILE, PAPER, chosen_sets, clocks, delayed, probe, read_frontier
from colonnade_lab.frontier.standing import AXES, FrontierPoint, frontier, looks, set_frontier, within
from colonnade_lab.papers.measures import Point, RunRecord
from colonnade_lab.papers.papers import PaperRun
from colonnade_lab.papers.results import Results, RunOptions
from colonnade_lab.papers.running import Job


def look(cost: float, validation: float, test: float = 0.5, protocol: str = "split") -> FrontierPoint:
    return FrontierPoint(protocol, "32 bits", cost, validation, (test,))


def record(*points: tuple[int, int, float, float], clock: bool = True, pace: float = 1.0) -> RunRecord:
    """Of points (round, bytes, validation, test)."""
    seen = tuple(
        Point(round=round, epoch=1, seconds=pace * round, bytes=size, accuracy=test, validation=validation)
        for round, size, validation, test in points
    )
    clocks = {f"{delay}": (0.5, delay / 1000) for delay in DELAYS} if clock else None
    return RunRecord(
        metrics={"test_accuracy": seen[-1].accuracy}, points=seen, tested=400, rounds=20, parties=4,
        bytes_up=1, bytes_down=1, wall=0, clock=clocks,
    )  # fmt: skip


def of_all(records: list[RunRecord]) -> dict[int, list[RunRecord]]:
    """The same records at every delay."""
    return dict.fromkeys(DELAYS, records)


def test_a_look_that_costs_more_and_is_no_better_is_dominated() -> None:
    best, dear, dominated, tied, cheap = look(2, 0.8), look(4, 0.9), look(3, 0.7), look(3, 0.8), look(1, 0.2)
    assert frontier([dominated, dear, tied, best, cheap]) == [cheap, best, dear]
    assert frontier([look(1, 0.3), look(1, 0.6)]) == [look(1, 0.6)]
    assert frontier([]) == []


def test_nothing_on_a_frontier_is_dominated_by_brute_force() -> None:
    found = [look((7 * i) % 13, ((5 * i) % 11) / 11) for i in range(40)]

    def beaten(one: FrontierPoint) -> bool:
        return any(
            other.cost <= one.cost and other.validation >= one.validation
            and (other.cost, other.validation) != (one.cost, one.validation)
            for other in found
        )  # fmt: skip

    assert {(one.cost, one.validation) for one in frontier(found)} == {
        (one.cost, one.validation) for one in found if not beaten(one)
    }


def test_a_budget_chooses_the_best_that_it_buys() -> None:
    front = frontier([look(1, 0.2), look(2, 0.8), look(4, 0.9)])
    assert within(front, 3) == look(2, 0.8)
    assert within(front, 4) == look(4, 0.9)
    assert within(front, 0.5) is None


def test_test_rows_choose_nothing() -> None:
    """With test accuracies swapped among looks the same looks are chosen, at every budget and axis."""
    tests = [0.9, 0.1, 0.7, 0.3, 0.6, 0.2]
    chosen = []
    for order in (tests, tests[::-1], [1 - each for each in tests]):
        records = {
            "32 bits": record((10, 2**20, 0.5, order[0]), (20, 2**21, 0.7, order[1]), (30, 2**22, 0.6, order[2])),
            "8 bits": record((10, 2**18, 0.4, order[3]), (20, 2**19, 0.65, order[4]), (30, 2**20, 0.65, order[5])),
        }
        picked = []
        for axis in AXES:
            every = [each for variant, one in records.items() for each in looks("split", variant, of_all([one]), axis)]
            picked += [(axis, one.variant, one.cost, one.validation) for one in frontier(every)]
        chosen.append(picked)
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(chosen[0]) > len(AXES)


def test_looks_are_means_of_seeds_and_costs_of_their_axis() -> None:
    first, second = record((10, 2**20, 0.4, 0.2)), record((10, 2**20, 0.6, 0.4))
    runs = of_all([first, second])
    (one,) = looks("split", "32 bits", runs, "mib")
    assert (one.cost, one.validation, one.tests) == (1, 0.5, (0.2, 0.4))
    assert math.isclose(one.test, 0.3)
    assert looks("split", "32 bits", runs, "rounds")[0].cost == 10
    assert looks("split", "32 bits", runs, "seconds-100")[0].cost == pytest.approx(0.5 + 10 * 0.1)


def test_an_asynchronous_protocol_has_the_clock_of_its_own_runs() -> None:
    runs = {delay: [record((10, 2**20, delay / 200, 0.2), clock=False, pace=delay)] for delay in DELAYS}
    for delay in DELAYS:
        (one,) = looks("vafl", "32 bits", runs, f"seconds-{delay}")
        assert (one.cost, one.validation) == (10 * delay, delay / 200)
    assert looks("vafl", "32 bits", runs, "mib")[0].validation == 25 / 200


def test_looks_after_other_rounds_or_without_validation_rows_are_left_out() -> None:
    uneven = of_all([record((10, 1, 0.4, 0.2)), record((11, 1, 0.4, 0.2))])
    assert looks("split", "32 bits", uneven, "rounds") == []
    blind = record((10, 1, 0.4, 0.2))
    blind = blind.model_copy(update={"points": (blind.points[0].model_copy(update={"validation": None}),)})
    assert looks("split", "32 bits", of_all([blind]), "rounds") == []


DIGITS = EXPERIMENTS / "beside" / "digits.yaml"
TASK = (
    "federation.rounds=20",
    "federation.rows={train: 1280, validation: 200, test: 317}",
    "federation.evaluate={every: 20}",
)
HOLDER = ("federation.parties=3", "server.active={data: {source: sklearn, name: digits, split: columns}}")
SYNCHRONOUS = {
    "split": ("federation.protocol={name: split, embedding: 32}",),
    "vimadmm": ("federation.protocol={name: vimadmm, embedding: 32, tau: 2}",),
    "vfedmh": ("federation.protocol={name: vfedmh, embedding: 32}", *HOLDER),  # two exchanges a round
}


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_a_clock_from_a_few_rounds_is_that_of_the_whole_run(name: str) -> None:
    job = Job(
        PAPER, f"digits/{name}", PaperRun(file="beside/digits.yaml", set=(*SYNCHRONOUS[name], *TASK), minutes=1), 0
    )
    before, each = probe(job, 25)
    whole = Simulation(load(DIGITS, (*job.sets, *delayed(name, 25))), DIGITS.parent).run()
    ends = {event["round"]: event["time"] for event in whole.of_kind("round")}
    begun = whole.of_kind("begin")[0]["time"]
    for round in (5, 13, 20):
        assert before + each * round == pytest.approx(ends[round] - begun, abs=2e-5)
    assert each > 0.05  # a message and its answer at the least


def test_delays_and_computing_both_take_time() -> None:
    job = Job(
        PAPER, "digits/split", PaperRun(file="beside/digits.yaml", set=(*SYNCHRONOUS["split"], *TASK), minutes=1), 0
    )
    found = clocks(job)
    computing = found["1"][1] - 0.002
    assert computing > 1e-5
    for delay in DELAYS:
        assert found[f"{delay}"][1] == pytest.approx(0.002 * delay + computing, abs=1e-6)


def test_batches_of_several_sizes_have_no_clock() -> None:
    uneven = ("federation.rows={train: 1000, validation: 200, test: 317}",)
    run = PaperRun(file="beside/digits.yaml", set=(*SYNCHRONOUS["split"], *TASK, *uneven), minutes=1)
    with pytest.raises(InputError, match="last batch of an epoch has 104 rows"):
        probe(Job(PAPER, "digits/split", run, 0), 25)


def test_the_plan_has_all_protocols_and_its_runs_can_be_read() -> None:
    plan = read_frontier()
    assert {*plan.protocols, *plan.left_out} == set(NAMES)
    assert list(plan.sets) == ["mfeat", "adult", "mnist", "fashion", "cifar"]
    for job in plan.jobs(tuple(plan.sets), 1):
        federation = load(job.run.path, job.sets).federation
        assert federation.rounds == 400
        assert federation.evaluate.every == 10
        assert federation.rows.train % federation.batch == 0
        assert federation.rows.validation


def test_the_same_compression_is_allowed_to_all_that_can() -> None:
    plan = read_frontier()
    both = {name for name, entry in plan.protocols.items() if entry.compress == "both"}
    assert {name for name in plan.protocols if name not in both} == {"fedvs", "vfedmh", "centralized"}
    assert all(list(plan.variants(name)) == ["32 bits", "8 bits", "4 bits"] for name in both)
    for name in ("fedvs", "vfedmh"):  # what the list says cannot be, is refused
        run = plan.run("mnist", name, ("federation.compress={up: 8}",))
        with pytest.raises(ConfigError, match="compress"):
            load(run.path, run.set)


def test_only_asynchronous_protocols_have_a_run_for_each_delay() -> None:
    plan = read_frontier()
    names = {name for name, entry in plan.protocols.items() if entry.arrivals}
    assert names == {"vafl", "czofo", "zoo_vfl"}
    for name in plan.protocols:
        assert len(set(plan.runs("mnist", name, "32 bits", 0).values())) == (3 if name in names else 1)


def test_a_plan_without_a_protocol_is_refused(tmp_path: Path) -> None:
    tree = yaml.safe_load(FILE.read_text())
    del tree["protocols"]["vafl"]
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(ConfigError, match="missing or twice: vafl"):
        read_frontier(path)


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(InputError, match=r"no set 'minst'.*mnist"):
        chosen_sets(read_frontier(), "minst")


def test_a_quick_look_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--quick with --frontier"):
        commands.reproduce("mfeat", quick=True, frontier=True, out=tmp_path)


def keep(folder: Path, names: tuple[str, ...], seeds: int = 1, apart: float = 0.1) -> None:
    """Results of these protocols on mfeat: the later in the tuple, the better on validation rows alone."""
    plan, results = read_frontier(), Results(folder, f"{PAPER}.json")
    for seed in range(seeds):
        for place, name in enumerate(names):
            for number, variant in enumerate(plan.variants(name)):
                for job in set(plan.runs("mfeat", name, variant, seed).values()):
                    validation = 0.5 + 0.1 * place + 0.01 * number
                    test = 0.9 - apart * place + 0.001 * seed
                    results.keep(job, record((10, 2**20, validation, test), clock="@" not in job.name))


def test_the_page_comes_from_kept_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, ("split", "vafl", "centralized"))
    show_frontier(RunOptions("mfeat", 1, tmp_path, 1, only_list=True))
    said = capsys.readouterr().out
    assert "67 runs with 1 seed: 54 to be run" in said
    page = (tmp_path / "frontier.md").read_text()
    assert "Not run yet: Adult, MNIST, Fashion-MNIST, CIFAR-10." in page
    assert "centralized, where every column is shared, has 70.0 %" in page
    assert (tmp_path / "frontier-mfeat.svg").read_text().startswith("<svg")
    assert not (tmp_path / "frontier-mnist.svg").exists()


def test_one_seed_names_nobody(tmp_path: Path) -> None:
    keep(tmp_path, ("split", "vafl", "centralized"))
    show_frontier(RunOptions("mfeat", 1, tmp_path, 1, only_list=True))
    page = (tmp_path / "frontier.md").read_text()
    assert "One seed: nobody is ahead of anybody." in page
    assert "none is named first" in page
    assert (
        "is the best" not in page
        and "On the frontier of all protocols" not in page
        and "nobody is ahead of |" not in page
    )


def test_a_protocol_is_first_where_the_seeds_separate_it_from_all_others(tmp_path: Path) -> None:
    keep(tmp_path, ("split", "vafl", "centralized"), seeds=3)
    show_frontier(RunOptions("mfeat", 3, tmp_path, 1, only_list=True))
    page = (tmp_path / "frontier.md").read_text()
    assert "| 1 MiB | split 90.1 %, 4 bits |" in page  # on test rows; the reference is never first
    assert "On the frontier of all protocols" in page
    plan, results = read_frontier(), Results(tmp_path, f"{PAPER}.json")
    found = set_frontier(plan, "mfeat", results.get, 3)
    assert [look.protocol for look in found.leaders("mib", 1)] == ["split"]
    assert {look.protocol for look in set_frontier(plan, "mfeat", results.get, 1).leaders("mib", 1)} == {
        "split",
        "vafl",
    }


def test_protocols_that_the_test_rows_do_not_separate_are_all_named(tmp_path: Path) -> None:
    keep(tmp_path, ("split", "vafl"), seeds=3, apart=0.001)
    results = Results(tmp_path, f"{PAPER}.json")
    found = set_frontier(read_frontier(), "mfeat", results.get, 3)
    assert {look.protocol for look in found.leaders("mib", 1)} == {"split", "vafl"}


def test_a_protocol_counts_when_all_of_its_variants_are_there(tmp_path: Path) -> None:
    keep(tmp_path, ("split", "vafl"))
    plan, results = read_frontier(), Results(tmp_path, f"{PAPER}.json")
    gone = next(iter(plan.runs("mfeat", "split", "4 bits", 0).values()))
    found = set_frontier(plan, "mfeat", lambda job: None if job == gone else results.get(job), 1)
    assert dict(found.seeds) == {"vafl": 1}


def test_listing_runs_nothing_and_writes_no_page_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_frontier(RunOptions("", 3, tmp_path, 2, only_list=True))
    assert "1005 runs with 3 seeds" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())


def test_evaluations_overtake_no_delayed_message_where_nothing_is_answered() -> None:
    """Of a member that waits for nothing they would fill the server's mailbox before the message that it waits for."""
    (delays, *_) = delayed("centralized", 25)
    assert "Features: 50ms" in delays
    assert "Evaluation: 50ms" in delays
    assert "Evaluation" not in delayed("split", 25)[0]
