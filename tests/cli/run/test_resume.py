"""Interrupted runs that go on: as processes if one is killed or stopped, else in one event loop."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from benchmarks import drill as drills
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.models.vector_free import Share
from colonnade.common.parsing.file import load
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import STAMP, RunFolder
from colonnade.common.run.state import State
from colonnade.server.training.trees.forest import Forest
from tests.cli.run.test_up import UNHURRIED, events, finish, processes_of, start, summary_of, wait_for_round, write
from tests.protocols.test_recovered_sums import late
from tests.support import warm
from tests.support.federation import Outcome, federate
from tests.support.household import colonnade
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.processes

VIMADMM = {"name": "vimadmm", "embedding": 16, "tau": 3}


def test_a_short_drill(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything at once is killed; see `make drill` for the long one. A party: the next test. A server: the last."""
    monkeypatch.setattr(drills, "ROUNDS", 18)
    monkeypatch.setattr(drills, "SETS", (*drills.SETS, "federation.epochs=3", "federation.parties=2"))
    assert drills.drill(1, random.Random(4), ("all",), warm.Popen) == 0
    assert "1 of 1 survived (all 1)" in capsys.readouterr().out


def test_a_killed_party_is_restarted_and_the_run_reports_it(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, parties=3, epochs=12, checkpoint={"rounds": 5}), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 2, process, "checkpoint")  # rounds go on while a busy machine writes one
    kept = events(out, "checkpoint")[-1]["round"]
    processes_of(process)["party3"].kill()
    output = finish(process)
    assert process.returncode == 0, output
    assert "party3 was killed by SIGKILL, it is started again" in output
    (rollback,) = events(out, "rollback")
    assert rollback["party"] == "party3"
    (resume,) = events(out, "resume")
    assert resume["round"] % 5 == 0 and resume["round"] >= kept >= 10
    summary = summary_of(out)
    assert summary["status"] == "completed"
    assert [span["what"] for span in summary["timeline"]["party3"]] == ["here", "away", "here"]
    assert [span["what"] for span in summary["timeline"]["party1"]] == ["here"]


@pytest.mark.parametrize("absence", ["wait", "continue"])
def test_a_run_may_wait_for_a_party_or_go_on_without_it(tmp_path: Path, absence: str) -> None:
    quorum = {"fastest": 3} if absence == "continue" else "wait"
    # A party is back in an instant here, in which the others go on if they may: 30 ms a round at least.
    rounds = 60 if absence == "continue" else 24
    # An evaluation waits for the parties of its round: one killed in it is waited for, whatever the policy.
    more = {"absence": absence, "quorum": quorum, "checkpoint": {"rounds": 5}, "evaluate": {"every": rounds}}
    # Not VIMADMM: it may diverge when a party returns with an old state (docs/protocols/vimadmm.md).
    file, out = write(tmp_path, {"name": "split"}, rounds=rounds, epochs=0, **more), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out, "--chaos", "party1: delay=30ms", "--chaos", "party3: crash=12")
    assert code == 0, output
    (rejoin,) = events(out, "rejoin")
    assert rejoin["party"] == "party3" and rejoin["restored"] >= 5
    assert [event["round"] for event in events(out, "round")] == list(range(1, rounds + 1))
    assert not events(out, "rollback") and not events(out, "resume")
    missed = {event["round"] for event in events(out, "missing") if event["party"] == "party3"}
    if absence == "wait":
        assert missed <= {rejoin["round"]}
    else:
        assert rejoin["round"] in missed or len(missed) > 0


def test_a_party_that_crashes_amid_blinded_sums_comes_back_and_everyone_gets_new_keys(tmp_path: Path) -> None:
    """The others go on without it; its rounds with them are repeated over the same sets."""
    protocol = {"name": "vimadmm_j", "embedding": 8, "tau": 1, "update": "signal", "aggregate": "blinded"}
    more = {"absence": "continue", "quorum": {"need": 3, "grace": 2}, "checkpoint": {"rounds": 5}, "batch": 500}
    file = write(tmp_path, protocol, rounds=120, epochs=0, evaluate={"every": 120}, **more)
    out = tmp_path / "run"
    process = start("up", file, "--out", out, "--chaos", "party1: delay=30ms", "--chaos", "party3: crash=12")
    output = finish(process)
    assert process.returncode == 0, output
    (rollback,) = events(out, "rollback")
    assert rollback["party"] == "party3" and "everyone agrees on new keys" in rollback["reason"]
    (resume,) = events(out, "resume")
    assert resume["round"] in (0, 5, 10)
    assert not events(out, "rejoin") and {event["party"] for event in events(out, "abandoned")} == {"party3"}
    rounds = [event["round"] for event in events(out, "round")]
    assert set(rounds) == set(range(1, 121)) and rounds[rollback["round"]] == resume["round"] + 1
    ledgers = [read_lines(out / "parties" / f"party{number}" / "ledger.jsonl") for number in (1, 3)]
    sent = [{entry["round"]: entry for entry in ledger if entry.get("kind") == "Masked"} for ledger in ledgers]
    assert sent[0][13]["mechanism"] == "none, blinded, a sum of 3" and 13 not in sent[1]
    assert sent[0][120]["mechanism"] == sent[1][120]["mechanism"] == "none, blinded, a sum of 4"
    assert summary_of(out)["status"] == "completed"


def killed(folder: Path, protocol: dict, kind: str) -> tuple[Path, Outcome]:
    """A run whose second party is killed in its third round, when it has sent a message of a kind; and an unbroken one.

    Returns the first one's folder.
    """
    file, out, data = folder / "cells.yaml", folder / "run", {"source": "sklearn", "name": "breast_cancer"}
    federation = {"id": "cells", "parties": 3, "classes": 2, "rounds": 3, "batch": 64, "stop": "none"}
    file.write_text(json.dumps({
        "federation": {**federation, "protocol": protocol, "checkpoint": {"rounds": 1}},
        "server": {"labels": data}, "every_party": {"data": {**data, "split": "columns"}},
    }))  # fmt: skip
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 2, process)
    ledger, deadline = out / "parties" / "party2" / "ledger.jsonl", time.monotonic() + PATIENCE
    while not any(line.get("kind") == kind and line["round"] == 3 for line in read_lines(ledger)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    processes_of(process)["party2"].kill()
    output = finish(process)
    assert process.returncode == 0, output
    (resume,) = events(out, "resume")
    assert resume["round"] in (1, 2) and [event["round"] for event in events(out, "round")][2] == resume["round"] + 1
    return out, federate(load(file))


def kept(out: Path, member: str, round: int) -> State:
    run, config = RunFolder(out), load(out / "config.yaml")
    owner = Owner(member, run.number() or "", config.federation.lasting_hashes())
    return State(Checkpoints(run.member(member).checkpoints).load(round, owner))


def test_a_party_killed_inside_a_tree_grows_the_forest_of_an_unbroken_run(tmp_path: Path) -> None:
    """Bit by bit: the tree is begun anew, with other secrets."""
    out, whole = killed(tmp_path, {"name": "secureboost", "depth": 3}, "Sums")
    forest, expected = kept(out, SERVER, 3).keep("forest", lambda: Forest(3, 0)), whole.server.state["forest"].state()
    assert all(torch.equal(forest.state()["nodes"][name], nodes) for name, nodes in expected["nodes"].items())
    assert forest.state()["records"] == expected["records"]


def test_a_party_killed_inside_a_step_has_the_coefficients_of_an_unbroken_run(tmp_path: Path) -> None:
    """Bit by bit: under other keys and masks the step is the same. A scorecard's are those of a regression."""
    out, whole = killed(tmp_path, {"name": "scorecard", "bins": 8}, "MaskedSums")
    for name, ctx in whole.clients.items():
        share = kept(out, name, 3).keep("coefficients", lambda: Share(np.zeros((10, 1)), 30, 1.0))
        assert share.at.any() and np.array_equal(share.at, ctx.state["coefficients"].at)


def test_a_party_killed_inside_a_round_has_the_shapes_of_an_unbroken_run(tmp_path: Path) -> None:
    """Bit by bit, also of those that went on."""
    out, whole = killed(tmp_path, {"name": "additive", "bins": 8}, "MaskedSums")
    for name, ctx in whole.clients.items():
        shapes = kept(out, name, 3).keep("shapes", partial(torch.zeros_like, ctx.state["shapes"]))
        assert shapes.any() and torch.equal(shapes, ctx.state["shapes"])


def test_a_delayed_answer_of_a_session_that_is_over_is_not_sent_in_the_next(tmp_path: Path) -> None:
    """It would be masked with other keys, and stand before the answer that the server waits for."""
    protocol = {"name": "split_avg", "embedding": 8, "aggregate": "blinded"}
    more = {"checkpoint": {"rounds": 2}, "timeouts": {"answer": 10}, "evaluate": {"every": 6}}
    file, out = write(tmp_path, protocol, rounds=6, epochs=0, **more), tmp_path / "run"
    faults = ("--chaos", "every_party: delay=300ms", "--chaos", "party3: crash=4")
    code, output = colonnade("up", file, "--out", out, "--set", "launch.backoff=0", *faults)
    assert code == 0, output
    (rollback,) = events(out, "rollback")
    assert rollback["party"] == "party3"
    calm = tmp_path / "calm"
    code, output = colonnade("up", file, "--out", calm)
    assert code == 0, output
    loss = {event["round"]: event["loss"] for event in events(calm, "round")}
    assert {event["round"] for event in events(out, "round")} == set(loss) == set(range(1, 7))
    assert all(event["loss"] == loss[event["round"]] for event in events(out, "round"))


def test_a_party_that_stays_away_ends_the_run_which_can_be_resumed(tmp_path: Path) -> None:
    quick = {"checkpoint": {"rounds": 5}, "timeouts": {"away": 3}}
    file, out = write(tmp_path, VIMADMM, epochs=4, **quick), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out, "--set", "launch.backoff=30", "--chaos", "party3: crash=12")
    assert code != 0
    assert "party3 was lost: did not come back within 3 s" in output
    assert f"colonnade up --resume {out}" in output
    assert summary_of(out)["status"] == "failed"
    # Parties wait for the server as long as it waits for them: on a busy machine half a second is short for its start.
    code, output = colonnade("up", "--resume", out, "--set", "federation.timeouts.away=60")
    assert code == 0, output
    assert "everyone goes on after round" in output
    assert summary_of(out)["status"] == "completed"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is over, with checkpoints of rounds 6 and 12."""
    folder = tmp_path_factory.mktemp("finished")
    file = write(folder, VIMADMM, epochs=2, checkpoint={"rounds": 6})
    code, output = colonnade("up", file, "--out", folder / "run")
    assert code == 0, output
    return folder / "run"


def resume(run: Path, *more: str) -> tuple[int, str]:
    """The exit code and the output of a resumed run."""
    return colonnade("up", "--resume", run, *more)


def test_more_rounds_go_on_where_the_run_ended(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    code, output = resume(run, "--set", "federation.epochs=3")
    assert code == 0, output
    assert [event["round"] for event in events(run, "round")] == list(range(1, 19))
    summary = summary_of(run)
    before = summary_of(finished)
    assert summary["rounds"] == 18 and summary["bytes"]["up"]["payload"] > before["bytes"]["up"]["payload"]


def test_a_run_stops_early_and_all_members_keep_the_best_rounds_checkpoint(tmp_path: Path) -> None:
    """The accuracy falls after a while at this rate; on the wire a run stops in the same round as one without."""
    rough = {"checkpoint": {"rounds": 2}, "evaluate": {"every": 1}, "stop": {"drop": 0.1}}
    protocol, lr = {"name": "split", "embedding": 8}, "every_party.optimiser.lr=5"
    file, run = write(tmp_path, protocol, epochs=20, batch=500, **rough), tmp_path / "run"
    code, output = colonnade("up", file, "--out", run, "--set", lr)
    assert code == 0, output
    virtual = federate(load(file, (lr,))).server
    summary = summary_of(run)
    assert (summary["status"], summary["rounds"], summary["stopped"]) == ("completed", virtual.round, virtual.stopped)
    best = virtual.best.round
    assert summary["best"] == virtual.best.summary(best) and best < virtual.round < 40
    assert [event["round"] for event in events(run, "stopped")] == [virtual.round]
    for member in (run, *(run / "parties" / f"party{number}" for number in range(1, 5))):
        held = {int(path.stem[6:]) for path in (member / "checkpoints").glob("round-*.json")}
        assert {best, virtual.round} <= held and len(held) <= 3
    code, output = resume(run)
    assert code == 0, output
    assert summary_of(run)["rounds"] == virtual.round


def test_noise_on_labels_is_drawn_once_however_often_a_run_goes_on(tmp_path: Path) -> None:
    file, run = write(tmp_path, VIMADMM, epochs=2, checkpoint={"rounds": 4}), tmp_path / "run"
    code, output = colonnade("up", file, "--out", run, "--set", "server.privacy.labels.deviation=1")
    assert code == 0, output
    assert "noised once, epsilon 2.83" in output
    drawn = (run / "noisy-labels.safetensors").read_bytes()
    code, output = resume(run, "--set", "federation.epochs=3")
    assert code == 0, output
    assert (run / "noisy-labels.safetensors").read_bytes() == drawn
    spent = summary_of(run)["label_privacy"]
    assert spent["mechanism"] == "laplace" and spent["epsilon"] == pytest.approx(2.828, abs=1e-3)
    code, output = resume(run, "--set", "server.privacy.labels.deviation=2")
    assert code == 2 and "was drawn for other settings" in output and "Traceback" not in output
    code, output = resume(run, "--set", "server.privacy.labels=null")
    assert code == 2 and "cannot go on without it" in output


def test_another_configuration_is_refused(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    code, output = resume(run, "--set", "federation.protocol.rho=2")
    assert code == 2 and "it differs in federation.protocol.rho" in output and "Traceback" not in output


def test_a_torn_checkpoint_falls_back_to_the_one_before_with_a_warning(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    torn = run / "parties" / "party2" / "checkpoints" / "round-00000012.safetensors"
    torn.write_bytes(torn.read_bytes()[:100])
    code, output = resume(run, "--set", "federation.epochs=3")
    assert code == 0, output
    assert "everyone goes on after round 6" in output
    warnings = [e["reason"] for e in read_lines(run / "parties/party2/events.jsonl") if e["kind"] == "warning"]
    assert any("round-00000012.json is torn or was altered" in reason for reason in warnings)


def test_checkpoints_of_another_run_are_refused(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "run.json").write_text(json.dumps({"run": "another", **STAMP}))
    code, output = resume(run)
    assert code != 0 and "is of run" in output and "not 'another'" in output and "Traceback" not in output


def test_a_party_without_its_checkpoints_is_named(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(run / "parties" / "party2" / "checkpoints")
    code, output = resume(run)
    assert code != 0 and "party2" in output and "lack that of round 12" in output


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    code, output = resume(tmp_path)
    assert code == 2 and "holds no run" in output


def test_a_file_and_a_run_to_resume_are_one_too_many(finished: Path, tmp_path: Path) -> None:
    file = write(tmp_path, VIMADMM)
    code, output = colonnade("up", file, "--resume", finished)
    assert code == 2 and "leave the file away" in output


def test_two_launchers_or_servers_do_not_work_in_one_folder(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, parties=2, epochs=500), tmp_path / "run"
    first = start("up", file, "--out", out, *UNHURRIED, "--insecure")
    try:
        wait_for_round(out, 3, first)
        code, output = resume(out)
        assert code == 4 and f"({first.pid} on " in output
        code, output = colonnade("server", out / "server.yaml", "--resume", out, "--insecure")
        assert code == 4 and f"({processes_of(first)['server'].pid} on " in output
    finally:
        first.kill()
        first.communicate()


def test_a_simulation_reports_its_virtual_duration(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, epochs=1), tmp_path / "virtual"
    code, output = colonnade("simulate", file, "--out", out, "--chaos", "party2: delay.Embedding=10s")
    assert code == 0, output
    assert "60.0 s of delays, simulated in" in output
    summary = summary_of(out)
    assert summary["clock"] == "virtual" and summary["rounds"] == 6 and len(events(out, "round")) == 6


def test_a_party_crashes_and_another_stands_still_as_its_configuration_says(tmp_path: Path) -> None:
    """Each once, although the rollback repeats the rounds."""
    quick = {"checkpoint": {"rounds": 5}, "quorum": {"deadline": 0.5}}
    file, out = write(tmp_path, {"name": "split"}, parties=3, rounds=40, epochs=0, **quick), tmp_path / "run"
    faults = ("--chaos", "party2: crash=8", "--chaos", "party3: pause=2s@20")
    process = start("up", file, "--out", out, *faults)
    output = finish(process)
    assert process.returncode == 0, output
    happened = {
        name: [e["kind"] for e in read_lines(out / "parties" / name / "events.jsonl") if e["kind"].endswith("ed")]
        for name in ("party2", "party3")
    }
    assert happened == {"party2": ["crashed"], "party3": ["paused"]}
    assert [event["party"] for event in events(out, "rollback")] == ["party2"]
    missed = [event["round"] for event in events(out, "missing") if event["party"] == "party3"]
    assert len(missed) >= 2 and missed == list(range(20, 20 + len(missed)))  # 2 s are several deadlines


def test_parties_wait_for_a_server_that_is_stopped_or_killed_and_started_again(tmp_path: Path) -> None:
    """Members started separately. A server asked to end, as a service is, reports no failure to the parties."""
    more = {"checkpoint": {"rounds": 5}, "timeouts": {"away": PATIENCE}}
    file = write(tmp_path, VIMADMM, parties=2, rounds=40, epochs=0, **more)
    names, address, home = ("party1", "party2"), tmp_path / "address", tmp_path / "members"
    plain = ("--insecure", "--set", "every_party.chaos.delay=20ms")
    single = ("--set", "server.threads=1", "--set", "every_party.threads=1")  # sums of several may differ in a bit

    def serve(how: str) -> subprocess.Popen[str]:
        address.unlink(missing_ok=True)
        before = len(events(home / "server", "listening"))
        process = start("server", file, how, home / "server", *plain, *single)
        wait_for_round(home / "server", before + 1, process, "listening")
        address.write_text(events(home / "server", "listening")[-1]["address"])
        return process

    server = serve("--in")
    parties = [
        start("client", file, "--party", name, "--in", home / name, "--server-file", address, *plain, *single)
        for name in names
    ]
    try:
        wait_for_round(home / "server", 2, server, "checkpoint")
        server.terminate()
        output = finish(server)
        assert server.returncode == 130 and "interrupted" in output
        assert summary_of(home / "server")["status"] == "interrupted"
        assert [party.poll() for party in parties] == [None] * 2
        server = serve("--in")
        wait_for_round(home / "server", 4, server, "checkpoint")
        server.kill()
        server.communicate()
        server = serve("--resume")
        outputs = [finish(member) for member in (server, *parties)]
    finally:
        for member in (server, *parties):
            member.kill()
    assert [member.returncode for member in (server, *parties)] == [0] * 3, outputs
    first, second = (event["round"] for event in events(home / "server", "resume"))
    assert 10 <= first < second
    losses = {event["round"]: event["loss"] for event in events(home / "server", "round")}
    assert list(losses.values()) == [event["loss"] for event in federate(load(file)).of_kind("round")]
    assert summary_of(home / "server")["status"] == "completed"
    assert [len(events(home / name, "begin")) for name in names] == [3] * 2
    assert all(len(events(home / name, "server_away")) == 2 for name in names)


def test_the_round_in_which_a_party_is_killed_is_summed_over_the_others(tmp_path: Path) -> None:
    """With the same loss, to the bit, as on the virtual clock, where its words come too late."""
    protocol = {"name": "fdml", "embedding": 8, "aggregate": "blinded"}
    more = {"absence": "continue", "quorum": {"need": 3, "grace": 5}, "blinding": {"recovery": "alone"}, "batch": 500}
    file, out = write(tmp_path, protocol, rounds=4, epochs=0, evaluate={"every": 99}, **more), tmp_path / "run"
    waiting = ("--chaos", "party1: delay=100ms")  # until the connection of the killed one has broken
    process = start("up", file, "--out", out, "--set", "launch.backoff=60", *waiting, "--chaos", "party4: crash=2")
    output = finish(process)
    assert process.returncode == 0, output
    assert "party4 was killed by SIGKILL" in output and summary_of(out)["status"] == "completed"
    assert [(event["round"], event["without"]) for event in events(out, "partial_sum")] == [(2, ["party4"])]
    assert not events(out, "skipped") and not events(out, "abandoned") and not events(out, "rollback")
    together = federate(load(file), delay=late_from_round_2)
    assert [event["loss"] for event in events(out, "round")] == [event["loss"] for event in together.of_kind("round")]
    ledger = read_lines(out / "parties" / "party1" / "ledger.jsonl")
    opened = [line["round"] for line in ledger if line.get("kind") == "OpenedShares"]
    assert opened == [1, 2, 3, 4]


late_from_round_2 = late(object, 1e4, rounds=tuple(range(2, 5)))


def worker_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Rank 1 of the party that has ranks."""
    (found,) = (
        child for child in psutil.Process(process.pid).children(recursive=True) if child.environ().get("RANK") == "1"
    )
    return found


def test_a_party_whose_worker_is_killed_comes_back_and_learns_what_one_process_does(tmp_path: Path) -> None:
    more = {"public_start": True, "checkpoint": {"rounds": 2}, "evaluate": {"every": 8}, "batch": 300}
    file = write(tmp_path, {"name": "split", "embedding": 8}, parties=2, rounds=8, epochs=0, **more)
    out, alone = tmp_path / "run", federate(load(file))
    process = start("up", file, "--out", out, "--set", "parties.party2.workers=2", *UNHURRIED)
    wait_for_round(out, 3, process)
    worker_of(process).kill()
    output = finish(process)
    assert process.returncode == 0, output
    assert "party2 was killed by SIGKILL, it is started again" in output
    (rollback,) = events(out, "rollback")
    assert rollback["party"] == "party2"
    found = {event["round"]: event["loss"] for event in events(out, "round")}
    expected = {event["round"]: event["loss"] for event in alone.of_kind("round")}
    assert found == pytest.approx(expected, rel=0, abs=1e-5) and len(found) == 8
    assert json.loads((out / "summary.json").read_text())["status"] == "completed"
    sets = ("--set", "federation.rounds=10", "--set", "parties.party2.workers=1")  # whose workers held nothing
    code, output = colonnade("up", "--resume", out, *sets)
    assert code == 0, output


def test_a_model_that_ranks_cannot_share_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    file = write(tmp_path, {"name": "split", "embedding": 8}, parties=2, rounds=2, epochs=0)
    (tmp_path / "tower.py").write_text(
        "from torch import nn\n\ndef tower(shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 8), "
        "nn.Dropout())\n"
    )
    sets = ("--set", "parties.party2.model=./tower.py:tower", "--set", "parties.party2.workers=2")
    process = start("up", file, "--out", tmp_path / "run", *sets)
    said = " ".join(finish(process).split())
    assert process.returncode == 2 and "party2: parties.party2.model, with several ranks: has dropout" in said
