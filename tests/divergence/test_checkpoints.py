"""Checkpoints of a run that diverges: the newest sound one is kept, and the run goes on from it."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest
import torch
import yaml

from colonnade.common.config.optimisers import AdamWConfig, OptimiserConfig, SgdConfig
from colonnade.common.config.run_options import CheckpointConfig
from colonnade.common.conversation.parcels import Save
from colonnade.common.errors import CheckpointError
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.file import load
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.state import Snapshot, State
from colonnade.server.member.saving import Saving
from colonnade.simulation.federation import RunFiles, Simulation
from tests.support.bursting import bursting
from tests.support.federation import tree
from tests.support.household import colonnade

OWNER = Owner("server", "r")


def write(folder: Path, protocol: dict, *, parties: dict | None = None, lr: float = 0.1, **federation: object) -> Path:
    made = tree(protocol, **federation)
    made["every_party"]["optimiser"] = {"name": "sgd", "lr": lr}
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump({**made, "parties": parties or {}}))
    return path


def held(run: Path, member: str = "server") -> list[int]:
    folder = run / "checkpoints" if member == "server" else run / "parties" / member / "checkpoints"
    return sorted(int(path.stem[6:]) for path in folder.glob("round-*.json"))


def rounds(run: Path) -> list[int]:
    return [event["round"] for event in read_lines(run / "events.jsonl") if event["kind"] == "round"]


def pasted(output: str) -> list[str]:
    """The command in a hint, as a shell reads it, without its name."""
    line = next(line for line in output.splitlines() if "colonnade" in line and "--resume" in line)
    return shlex.split(line[line.index("colonnade ") :].partition("(or")[0])[1:]


def test_a_state_that_is_not_finite_is_never_saved(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match="round 5 would hold numbers that are not finite, in w") as refused:
        store.save(5, Snapshot({"w": torch.tensor([1.0, torch.inf])}, {"w": {"tensor": "w"}}), OWNER)
    assert "in w" not in refused.value.shared and not list(tmp_path.iterdir())


def saving_of(folder: Path) -> Saving:
    return Saving(Checkpoints(folder), folder, OWNER, CheckpointConfig(rounds=1), Telemetry(None))


def test_while_something_grows_the_newest_sound_one_is_kept(tmp_path: Path) -> None:
    asked: list[Save] = []

    async def scene() -> int:
        saving = saving_of(tmp_path)
        for round, sound in ((1, True), (2, True), (3, False), (4, False), (5, False)):
            await saving.begin(round, Snapshot(), ["ada"], asked.append, sound=sound)
            saving.saved("ada", round)
            await saving.finish(5)
        assert saving_of(tmp_path).sound == 2 and Checkpoints(tmp_path).usable() == [5, 2]
        return await saving.go_back(1, 5)

    assert asyncio.run(scene()) == 2
    assert [save.keep for save in asked] == [0, 1, 2, 2, 2]
    again = saving_of(tmp_path)
    assert (again.committed, again.sound, again.backed_off) == (2, 2, 1)
    assert Checkpoints(tmp_path).usable() == [2]


def test_one_that_is_being_written_is_dropped_too(tmp_path: Path) -> None:
    async def scene() -> None:
        saving = saving_of(tmp_path)
        await saving.begin(1, Snapshot(), [], lambda _save: None)
        await saving.finish(5)
        await saving.begin(2, Snapshot(), ["ada"], lambda _save: None, sound=False)
        await saving.go_back(0, 5)

    asyncio.run(scene())
    assert Checkpoints(tmp_path).usable() == [1]


def test_a_sound_one_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    async def scene() -> int:
        saving = saving_of(tmp_path)
        await saving.begin(3, Snapshot(), ["ada"], lambda _save: None)
        asyncio.get_running_loop().call_later(0.05, saving.saved, "ada", 3)
        return await saving.go_back(0, 30)

    assert asyncio.run(scene()) == 3 and saving_of(tmp_path).sound == 3


def test_without_its_record_a_run_goes_back_to_the_checkpoint_that_it_resumed_from(tmp_path: Path) -> None:
    """Round 0 would be refused by every party that has seen a committed checkpoint, with nothing left at the server."""

    async def scene() -> int:
        Checkpoints(tmp_path).save(5, Snapshot(), OWNER)
        saving = saving_of(tmp_path)
        saving.restored(5)
        return await saving.go_back(1, 5)

    assert asyncio.run(scene()) == 5 and Checkpoints(tmp_path).usable() == [5]


def test_a_resumed_run_drops_all_checkpoints_of_later_rounds(tmp_path: Path) -> None:
    """Else a party that dies before it saves such a round again comes back with the one of the divergence."""
    file, run = write(tmp_path, {"name": "split"}, checkpoint={"rounds": 4}), tmp_path / "run"
    code, output = colonnade("simulate", file, "--out", run)
    assert code == 0, output
    *earlier, last = held(run)
    assert held(run, "party2") == [*earlier, last]
    Checkpoints(run / "checkpoints").prune(earlier)  # as after a divergence

    async def stop(*_: object) -> None:
        await asyncio.sleep(1)
        raise InterruptedError

    config = load(file)
    again = Simulation(config, tmp_path, files=RunFiles(run, config, tmp_path), instead={"server": stop})
    with pytest.raises(InterruptedError):
        again.run()
    assert again.start[0] == earlier[-1]
    assert held(run, "party2") == held(run) == earlier


def test_a_record_of_an_earlier_version_is_of_a_sound_round(tmp_path: Path) -> None:
    (tmp_path / "committed.json").write_text(json.dumps({"round": 7, "best": 3}))
    saving = saving_of(tmp_path)
    assert (saving.committed, saving.best, saving.sound, saving.backed_off) == (7, 3, 7, 0)


def test_a_restored_optimiser_has_its_momentum_and_the_rate_that_is_configured_now() -> None:
    def optimiser(lr: float, state: State) -> torch.optim.Optimizer:
        weight = torch.nn.Parameter(torch.ones(2))
        made = state.keep("optimiser", lambda: build_optimiser(SgdConfig(lr=lr), [weight]))
        weight.grad = torch.ones(2)
        made.step()
        return made

    first = State()
    optimiser(0.1, first)
    second = optimiser(0.03, State(first.capture()))
    assert second.param_groups[0]["lr"] == 0.03
    (kept,) = second.state.values()
    assert torch.allclose(kept["momentum_buffer"], torch.full((2,), 0.9 * 1.001 + 1.001))


@pytest.mark.parametrize("how", ["simulate", pytest.param("up", marks=pytest.mark.processes)])
def test_the_command_of_the_hint_goes_on_from_the_sound_checkpoint(how: str, tmp_path: Path) -> None:
    """Party 2 of VIMADMM explodes within its local steps after round 35; round 20 is the newest that is saved."""
    protocol, parties = {"name": "vimadmm", "embedding": 60}, {"party2": bursting(tmp_path, 35 * 20 + 5.5, lr=0.02)}
    file = write(tmp_path, protocol, parties=parties, lr=0.02, batch=32, rounds=45, epochs=0, checkpoint={"rounds": 20})
    code, output = colonnade(how, file, "--out", tmp_path / "a run")
    run = tmp_path / "a run"
    assert code == 6, output
    assert len([line for line in output.splitlines() if "error:" in line]) == 1, output
    assert "error: party2" in output and "go on with it" not in output and "then party" not in output
    newest = max(held(run))
    assert newest == 20 and all(newest in held(run, f"party{k}") for k in range(1, 5))
    command = pasted(output)
    assert command == [how, "--resume", str(run), "--set", "parties.party2.optimiser.lr=0.00667"], output
    code, output = colonnade(*command)
    assert code == 0, output
    done = rounds(run)
    assert done[done.index(max(done[:36])) + 1] == newest + 1 and done[-1] == 45
    kept = yaml.safe_load((run / "config.yaml").read_text())
    assert kept["parties"]["party2"]["optimiser"]["lr"] == 0.00667


def test_every_partys_rate_and_the_local_steps_may_change_and_have_an_effect(tmp_path: Path) -> None:
    protocol = {"name": "vimadmm", "embedding": 16, "tau": 6}
    file, weights = write(tmp_path, protocol, rounds=4, epochs=0, checkpoint={"rounds": 2}), []
    for name, sets in {
        "same": (), "rate": ("every_party.optimiser.lr=0.01",), "steps": ("federation.protocol.tau=2",)
    }.items():  # fmt: skip
        run = tmp_path / name
        assert colonnade("simulate", file, "--out", run)[0] == 0
        code, output = colonnade(
            "simulate", "--resume", run, "--set", "federation.rounds=6", *(word for s in sets for word in ("--set", s))
        )
        assert code == 0, output
        weights.append([event["loss"] for event in read_lines(run / "events.jsonl") if event["kind"] == "round"])
    same, rate, steps = weights
    assert same[:5] == rate[:5] == steps[:5] and len({same[5], rate[5], steps[5]}) == 3


def test_local_steps_that_privacy_pays_for_may_not_change(tmp_path: Path) -> None:
    privacy = {"clip": 1, "noise_multiplier": 20, "delta": 1e-5}
    file = write(tmp_path, {"name": "vimadmm", "embedding": 16, "tau": 6}, rounds=4, epochs=0, privacy=privacy)
    assert colonnade("simulate", file, "--out", tmp_path / "run")[0] == 0
    code, output = colonnade("simulate", "--resume", tmp_path / "run", "--set", "federation.protocol.tau=2")
    assert code == 2 and "it differs in federation.protocol.tau" in output


def test_a_run_without_a_sound_checkpoint_begins_again(tmp_path: Path) -> None:
    """Growth begins in round 2, before the first checkpoint, and none is taken."""
    parties = {"party3": {"optimiser": {"lr": 1000}}}
    file, run = write(tmp_path, {"name": "split"}, parties=parties, checkpoint={"rounds": 4}), tmp_path / "run"
    code, output = colonnade("simulate", file, "--out", run)
    assert code == 6 and "from the beginning, as no checkpoint is sound" in output and not held(run)
    code, output = colonnade(*pasted(output), "--set", "parties.party3.optimiser.lr=0.1")
    assert code == 0, output
    assert rounds(run)[-12:] == list(range(1, 13))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_momenta_of_another_optimiser_are_refused(momentum: float) -> None:
    """A member's file may leave the optimiser out, and the protocol's default is another one now."""

    def optimiser(config: OptimiserConfig, state: State) -> None:
        weight = torch.nn.Parameter(torch.ones(2))
        made = state.keep("optimiser", lambda: build_optimiser(config, [weight]))
        weight.grad = torch.ones(2)
        made.step()

    first = State()
    optimiser(SgdConfig(momentum=momentum), first)
    with pytest.raises(CheckpointError, match="of another kind than AdamW") as refused:
        optimiser(AdamWConfig(), State(first.capture()))
    assert "optimiser that the run began with" in refused.value.hint
