"""`federation.back_off`: all members go back to the sound checkpoint, with lower rates."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from colonnade.common.config.members import Config
from colonnade.common.config.run_options import with_lower_rates
from colonnade.common.contracts.embeddings import Embedding
from colonnade.common.errors import ContractError, PeerError, TrainingDiverged
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.run.json_text import read_lines
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.page import write_page
from colonnade.simulation.federation import Simulation
from colonnade.simulation.folder import simulate_in
from tests.divergence.test_checkpoints import held, rounds, write
from tests.support.bursting import bursting
from tests.support.federation import config, parameters
from tests.support.household import colonnade
from tests.support.lying_server import Liar, lying

pytestmark = pytest.mark.real_time

SPLIT, VIMADMM = {"name": "split", "embedding": 60}, {"name": "vimadmm", "embedding": 60}
WILD = ("every_party.optimiser.lr=30", "federation.back_off=4", "federation.checkpoint.rounds=2", "federation.epochs=5")


def run(cfg: Config) -> tuple[Simulation, list[Event]]:
    events: list[Event] = []
    simulation = Simulation(cfg, telemetry=Telemetry(None, events.append))
    simulation.run()
    return simulation, events


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def test_rates_are_lowered_in_every_section() -> None:
    sets = ("server.active={data: {source: sklearn, name: digits, split: columns}, optimiser: {lr: 0.2}}",)
    cfg = config({"name": "agg_vfl"}, *sets, "every_party.head_optimiser.lr=0.5")
    assert cfg.server is not None and cfg.server.active is not None
    server, party = with_lower_rates(cfg.server, 2), with_lower_rates(cfg.parties["party1"], 1)
    assert server.active is not None
    found = (server.optimiser.lr, server.active.optimiser.lr, party.optimiser.lr, party.head_optimiser.lr)
    assert found == pytest.approx((0.1 * 0.09, 0.2 * 0.09, 0.03, 0.15))
    assert with_lower_rates(cfg.server, 0) is cfg.server


def test_the_run_goes_on_from_the_sound_round_with_lower_rates() -> None:
    simulation, events = run(config(SPLIT, *WILD))
    backs = of_kind(events, "back_off")
    assert backs and [event["times"] for event in backs] == list(range(1, len(backs) + 1))
    assert [event["factor"] for event in backs] == pytest.approx([0.3 ** event["times"] for event in backs])
    begins = of_kind(events, "begin")
    assert [event["round"] for event in begins] == [0, *(event["round"] for event in backs)]
    assert len(of_kind(events, "end")) == 1 and of_kind(events, "end")[0]["status"] == "completed"
    outcome = simulation.outcome
    assert outcome is not None and outcome.server.backed_off == len(backs)
    optimiser = outcome.clients["party1"].state["optimiser"]
    assert optimiser.param_groups[0]["lr"] == pytest.approx(30 * 0.3 ** len(backs))


def test_it_is_the_same_every_time_and_with_files(tmp_path: Path) -> None:
    first, events = run(config(SPLIT, *WILD))
    assert first.outcome is not None
    kept = simulate_in(config(SPLIT, *WILD), Path(), tmp_path)
    again = list(read_lines(tmp_path / "events.jsonl"))
    assert [e.get("loss") for e in of_kind(events, "round")] == [e.get("loss") for e in of_kind(again, "round")]
    for name, values in parameters(first.outcome).items():
        assert torch.equal(values, parameters(kept)[name])


def test_a_run_that_may_go_back_no_more_ends_with_the_error() -> None:
    sets = (*WILD, "every_party.optimiser.lr=1e9", "federation.back_off=2")
    events: list[Event] = []
    with pytest.raises(TrainingDiverged):
        Simulation(config(SPLIT, *sets), telemetry=Telemetry(None, events.append)).run()
    assert len(of_kind(events, "back_off")) == 2 and len(of_kind(events, "diverged")) == 3
    assert of_kind(events, "end")[0]["status"] == "failed"


def test_a_loss_that_explodes_and_stays_finite_is_enough() -> None:
    sets = ("server.optimiser.lr=300", "every_party.model=linear", "federation.back_off=3", "federation.epochs=8")
    _, events = run(config(SPLIT, *sets))
    back = of_kind(events, "back_off")[0]
    assert "the loss has grown" in back["reason"] or "its head has grown" in back["reason"]
    before = events[: events.index(back)]
    assert all(event["loss"] < 1e30 for event in of_kind(before, "round"))


def test_a_sound_run_does_not_go_back_and_is_not_changed() -> None:
    (plain, _), (ready, events) = run(config(SPLIT)), run(config(SPLIT, "federation.back_off=3"))
    assert not of_kind(events, "back_off") and plain.outcome is not None and ready.outcome is not None
    for name, values in parameters(plain.outcome).items():
        assert torch.equal(values, parameters(ready.outcome)[name])


def test_noise_on_labels_is_not_drawn_again(tmp_path: Path) -> None:
    drawn: list[bytes] = []

    def look(event: Event) -> None:
        if event["kind"] == "begin":
            drawn.append((tmp_path / "noisy-labels.safetensors").read_bytes())

    sets = ("server.privacy.labels={epsilon: 2}", *WILD, "every_party.optimiser.lr=1e9")
    with suppress(TrainingDiverged):
        simulate_in(config(SPLIT, *sets), Path(), tmp_path, (look,))
    assert len(drawn) > 1 and len(set(drawn)) == 1


def test_releases_are_paid_for_again_and_noise_is_drawn_anew(tmp_path: Path) -> None:
    """The head explodes by the server's rate: its parties release rounds again, each time at their budget's cost."""
    private = "federation.privacy={clip: 1, noise_multiplier: 5, delta: 1.0e-5}"
    sets = (private, "server.optimiser.lr=1e12", "federation.back_off=3", "federation.checkpoint.rounds=2")
    cfg, sent = config(SPLIT, *sets, "federation.epochs=3"), []
    simulation = Simulation(cfg, record=True)
    with suppress(TrainingDiverged):
        simulation.run()
    outcome = simulation.outcome
    assert outcome is not None and outcome.server.backed_off
    for sender, _, message in outcome.messages:
        if sender == "party1":
            sent.append(message)
    assert outcome.privacy["party1"].releases == len(sent)
    first = [message.h for message in sent if message.round == 1 and type(message).__name__ == "Embedding"]
    assert len(first) > 1 and not torch.equal(first[0], first[1])


def test_the_factor_outlives_a_resume_and_is_reported(tmp_path: Path) -> None:
    file, out = (
        write(tmp_path, SPLIT, lr=30, rounds=16, epochs=0, back_off=4, checkpoint={"rounds": 2}),
        tmp_path / "run",
    )
    code, output = colonnade("simulate", file, "--out", out)
    assert code == 0 and "everyone goes back to" in output and "went back" in output, output
    times = json.loads((out / "summary.json").read_text())["back_offs"]["times"]
    code, output = colonnade("simulate", "--resume", out, "--set", "federation.rounds=20")
    assert code == 0, output
    said = json.loads((out / "summary.json").read_text())["back_offs"]
    assert said["times"] >= times and said["factor"] == pytest.approx(0.3 ** said["times"])
    page = write_page([read_run(out)]).read_text()
    assert page.count("<p>went back ") == 1 and "made everyone go back, with lower rates" in page
    assert held(out)[-1] == 20


@pytest.mark.processes
@pytest.mark.parametrize(
    ("protocol", "steps", "more"),
    [
        (SPLIT, 17.5, {"rounds": 20, "checkpoint": {"rounds": 16}}),  # one: a busy machine skips the next
        (VIMADMM, 28 * 20 + 5.5, {"rounds": 40, "batch": 32, "checkpoint": {"rounds": 20}}),
    ],
    ids=["the server finds it", "a party finds it"],
)
def test_over_grpc_it_is_as_on_the_virtual_clock(
    protocol: dict[str, object], steps: float, more: dict[str, object], tmp_path: Path
) -> None:
    party = bursting(tmp_path, steps, lr=0.02)
    file = write(tmp_path, protocol, parties={"party2": party}, lr=0.02, epochs=0, back_off=4, **more)
    code, output = colonnade("up", file, "--out", tmp_path / "up")
    assert code == 0 and "everyone goes back to" in " ".join(output.split()), output
    assert colonnade("simulate", file, "--out", tmp_path / "virtual")[0] == 0
    ours, theirs = (list(read_lines(tmp_path / name / "events.jsonl")) for name in ("up", "virtual"))
    for kind, field in (("round", "loss"), ("back_off", "round"), ("back_off", "reason"), ("diverged", "party")):
        assert [e[field] for e in of_kind(ours, kind)] == [e[field] for e in of_kind(theirs, kind)]
    assert rounds(tmp_path / "up")[-1] == more["rounds"] and not of_kind(ours, "leave") and not of_kind(ours, "failed")


async def refused(there: Liar, said: str) -> None:
    """All parties refuse the number that the server says when it begins the run."""
    with pytest.raises(PeerError):
        cohort = await there.begin("run1")
        async for _ in cohort.rounds(1):
            await cohort.collect(Embedding, 1, there.config.federation.round_quorum)
    for error in (await there.errors()).values():
        assert isinstance(error, ContractError)
        assert f"server sent Begin.backed_off: {said}" in str(error)


async def test_a_server_that_lowers_rates_beyond_the_largest_number_is_refused(tmp_path: Path) -> None:
    async with lying(config({"name": "split"}), tmp_path) as there:
        there.start()
        there.hub.backed_off = 11
        await refused(there, "expected at most 10, got 11")


@pytest.mark.parametrize("restarted", [False, True], ids=["rewound", "restarted"])
async def test_a_server_that_raises_lowered_rates_again_is_refused(tmp_path: Path, restarted: bool) -> None:
    async with lying(config({"name": "split"}), tmp_path) as there:
        there.start()
        there.hub.backed_off = 2
        await there.begin("run1")
        for _ in there.parties:
            await there.event("begin")
        await there.again(restarted=restarted)
        there.hub.backed_off = 1
        await refused(there, "expected at least 2, got 1")
