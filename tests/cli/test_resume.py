"""Runs that are interrupted and go on, as real processes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.drill import drill
from colonnade.common.runtime.json_lines import read_lines
from tests import warm
from tests.cli.test_up import UNHURRIED, events, family_of, finish, start, wait_for_round, write
from tests.federation import config, federate
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

VIMADMM = {"name": "vimadmm", "embedding": 16, "tau": 3}


@pytest.mark.timeout(400)  # eight starts of a federation, on a machine that may be busy
def test_a_short_drill(capsys: pytest.CaptureFixture[str]) -> None:
    """A server, a party and everything at once are killed; see `make drill` for the long one."""
    assert drill(3, random.Random(4), ("server", "party", "all"), warm.Popen) == 0
    assert "3 of 3 survived (all 1, party 1, server 1)" in capsys.readouterr().out


def test_a_party_that_is_killed_is_started_again_and_the_run_says_so(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, epochs=40, checkpoint={"rounds": 5}), tmp_path / "run"
    process = start("up", file, "--out", out)
    wait_for_round(out, 2, process, "checkpoint")  # rounds go on while a busy machine writes one
    kept = events(out, "checkpoint")[-1]["round"]
    family_of(process)["party3"].kill()
    output = finish(process)
    assert process.returncode == 0, output
    assert "party3 was killed by SIGKILL, it is started again" in output
    (rollback,) = events(out, "rollback")
    assert rollback["party"] == "party3"
    (resume,) = events(out, "resume")
    assert resume["round"] % 5 == 0 and resume["round"] >= kept >= 10
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert [span["what"] for span in summary["timeline"]["party3"]] == ["here", "away", "here"]
    assert [span["what"] for span in summary["timeline"]["party1"]] == ["here"]


@pytest.mark.parametrize("absence", ["wait", "continue"])
def test_a_run_may_wait_for_a_party_or_go_on_without_it(tmp_path: Path, absence: str) -> None:
    quorum = {"fastest": 3} if absence == "continue" else "wait"
    # A process takes seconds to start again, in which the others go on if they may: 30 ms a round at least.
    rounds = 900 if absence == "continue" else 150
    # An evaluation waits for those who were in its round: who is killed in one is waited for, whatever the policy.
    more = {"absence": absence, "quorum": quorum, "checkpoint": {"rounds": 5}, "evaluate": {"every": rounds}}
    # Not VIMADMM: it may diverge when a party comes back with what it knew long ago (docs/protocols/vimadmm.md).
    file, out = write(tmp_path, {"name": "split"}, rounds=rounds, epochs=0, **more), tmp_path / "run"
    process = start("up", file, "--out", out, "--chaos", "party1: delay=30ms")
    wait_for_round(out / "parties" / "party3", 2, process, "checkpoint")  # its own: others may be ahead of it
    family_of(process)["party3"].kill()
    output = finish(process)
    assert process.returncode == 0, output
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
    """The others go on without it; its rounds with them come again over the sets that they had."""
    protocol = {"name": "vimadmm_j", "embedding": 8, "tau": 1, "update": "signal", "aggregate": "blinded"}
    more = {"absence": "continue", "quorum": {"need": 3, "grace": 2}, "checkpoint": {"rounds": 5}, "batch": 500}
    file = write(tmp_path, protocol, rounds=200, epochs=0, evaluate={"every": 200}, **more)
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
    assert set(rounds) == set(range(1, 201)) and rounds[rollback["round"]] == resume["round"] + 1
    ledgers = [read_lines(out / "parties" / f"party{number}" / "ledger.jsonl") for number in (1, 3)]
    sent = [{entry["round"]: entry for entry in ledger if entry["kind"] == "Masked"} for ledger in ledgers]
    assert sent[0][13]["mechanism"] == "none, blinded, a sum of 3" and 13 not in sent[1]
    assert sent[0][200]["mechanism"] == sent[1][200]["mechanism"] == "none, blinded, a sum of 4"
    assert json.loads((out / "summary.json").read_text())["status"] == "completed"


def test_a_party_that_stays_away_ends_the_run_which_can_be_resumed(tmp_path: Path) -> None:
    quick = {"checkpoint": {"rounds": 5}, "timeouts": {"away": 1.5}}
    file, out = write(tmp_path, VIMADMM, epochs=40, **quick), tmp_path / "run"
    process = start("up", file, "--out", out, "--set", "launch.backoff=30")
    wait_for_round(out, 12, process)
    family_of(process)["party3"].kill()
    output = finish(process)
    assert process.returncode != 0
    assert "party3 was lost: did not come back within 1.5 s" in output
    assert f"colonnade up --resume {out}" in output
    assert json.loads((out / "summary.json").read_text())["status"] == "failed"
    again = start("up", "--resume", out)
    output = finish(again)
    assert again.returncode == 0, output
    assert "everyone goes on after round" in output
    assert json.loads((out / "summary.json").read_text())["status"] == "completed"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is over, with checkpoints of rounds 6 and 12."""
    folder = tmp_path_factory.mktemp("finished")
    file = write(folder, VIMADMM, epochs=2, checkpoint={"rounds": 6})
    process = start("up", file, "--out", folder / "run")
    output = finish(process)
    assert process.returncode == 0, output
    return folder / "run"


def resume(run: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    process = start("up", "--resume", run, *more)
    return process, finish(process)


def test_more_rounds_go_on_where_the_run_ended(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    process, output = resume(run, "--set", "federation.epochs=3")
    assert process.returncode == 0, output
    assert [event["round"] for event in events(run, "round")] == list(range(1, 19))
    summary = json.loads((run / "summary.json").read_text())
    before = json.loads((finished / "summary.json").read_text())
    assert summary["rounds"] == 18 and summary["bytes"]["up"]["payload"] > before["bytes"]["up"]["payload"]


def test_a_run_stops_early_and_all_members_keep_the_best_rounds_checkpoint(tmp_path: Path) -> None:
    """The accuracy falls after a while at this rate; the processes stop where one event loop does."""
    rough = {"checkpoint": {"rounds": 2}, "evaluate": {"every": 1}, "stop": {"drop": 0.1}}
    protocol, lr = {"name": "split", "embedding": 8}, "every_party.optimiser.lr=5"
    file, run = write(tmp_path, protocol, epochs=20, batch=500, **rough), tmp_path / "run"
    process = start("up", file, "--out", run, "--set", lr)
    output = finish(process)
    assert process.returncode == 0, output
    sets = [f"federation.{key}={json.dumps(value)}" for key, value in {"epochs": 20, "batch": 500, **rough}.items()]
    virtual = federate(config(protocol, lr, *sets)).server
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["rounds"], summary["stopped"]) == ("completed", virtual.round, virtual.stopped)
    best = virtual.best.round
    assert summary["best"] == virtual.best.summary(best) and best < virtual.round < 40
    assert [event["round"] for event in events(run, "stopped")] == [virtual.round]
    for member in (run, *(run / "parties" / f"party{number}" for number in range(1, 5))):
        held = {int(path.stem[6:]) for path in (member / "checkpoints").glob("round-*.json")}
        assert {best, virtual.round} <= held and len(held) <= 3
    process, output = resume(run)
    assert process.returncode == 0, output
    assert json.loads((run / "summary.json").read_text())["rounds"] == virtual.round


def test_noise_on_labels_is_drawn_once_however_often_a_run_goes_on(tmp_path: Path) -> None:
    file, run = write(tmp_path, VIMADMM, epochs=2, checkpoint={"rounds": 4}), tmp_path / "run"
    process = start("up", file, "--out", run, "--set", "server.privacy.labels.deviation=1")
    output = finish(process)
    assert process.returncode == 0, output
    assert "noised once, epsilon 2.83" in output
    drawn = (run / "noisy-labels.safetensors").read_bytes()
    process, output = resume(run, "--set", "federation.epochs=3")
    assert process.returncode == 0, output
    assert (run / "noisy-labels.safetensors").read_bytes() == drawn
    spent = json.loads((run / "summary.json").read_text())["label_privacy"]
    assert spent["mechanism"] == "laplace" and spent["epsilon"] == pytest.approx(2.828, abs=1e-3)
    process, output = resume(run, "--set", "server.privacy.labels.deviation=2")
    assert process.returncode == 2 and "was drawn for other settings" in output and "Traceback" not in output
    process, output = resume(run, "--set", "server.privacy.labels=null")
    assert process.returncode == 2 and "cannot go on without it" in output


def test_another_configuration_is_refused(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    process, output = resume(run, "--set", "federation.protocol.rho=2")
    assert process.returncode == 2 and "it differs in federation.protocol.rho" in output and "Traceback" not in output


def test_a_torn_checkpoint_falls_back_to_the_one_before_with_a_warning(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    torn = run / "parties" / "party2" / "checkpoints" / "round-00000012.safetensors"
    torn.write_bytes(torn.read_bytes()[:100])
    process, output = resume(run, "--set", "federation.epochs=3")
    assert process.returncode == 0, output
    assert "everyone goes on after round 6" in output
    warnings = [e["reason"] for e in read_lines(run / "parties/party2/events.jsonl") if e["kind"] == "warning"]
    assert any("round-00000012.json is torn or was altered" in reason for reason in warnings)


def test_checkpoints_of_another_run_are_refused(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "run.json").write_text(json.dumps({"run": "another"}))
    process, output = resume(run)
    assert process.returncode != 0 and "is of run" in output and "not 'another'" in output and "Traceback" not in output


def test_a_party_without_its_checkpoints_is_named(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(run / "parties" / "party2" / "checkpoints")
    process, output = resume(run)
    assert process.returncode != 0 and "party2" in output and "lack that of round 12" in output


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    process, output = resume(tmp_path)
    assert process.returncode == 2 and "holds no run" in output


def test_a_file_and_a_run_to_resume_are_one_too_many(finished: Path, tmp_path: Path) -> None:
    file = write(tmp_path, VIMADMM)
    process = start("up", file, "--resume", finished)
    output = finish(process)
    assert process.returncode == 2 and "leave the file away" in output


def test_two_launchers_do_not_work_in_one_folder(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, epochs=500), tmp_path / "run"
    first = start("up", file, "--out", out, *UNHURRIED)
    try:
        wait_for_round(out, 3, first)
        second, output = resume(out)
        assert second.returncode == 4 and f"({first.pid}) works in" in output
    finally:
        first.kill()
        first.communicate()


def test_two_servers_do_not_work_in_one_folder(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, epochs=500), tmp_path / "run"
    first = start("up", file, "--out", out, *UNHURRIED, "--insecure")
    try:
        wait_for_round(out, 3, first)
        second = start("server", out / "server.yaml", "--resume", out, "--insecure")
        output = finish(second)
        assert second.returncode == 4 and "works in" in output
    finally:
        first.kill()
        first.communicate()


def test_members_of_their_own_resume_from_their_own_folders(tmp_path: Path) -> None:
    """A server and parties that nobody has launched together: the server dies and is started again by hand."""
    file = write(tmp_path, VIMADMM, rounds=40, epochs=0, checkpoint={"rounds": 5}, timeouts={"away": PATIENCE})
    single = ("--set", "server.threads=1", "--set", "every_party.threads=1")  # sums of several may differ in a bit
    address, home = tmp_path / "address", tmp_path / "members"
    names = [f"party{number}" for number in range(1, 5)]
    shared = (*single, "--insecure", "--chaos", "every_party: delay=10ms")

    def serve(how: str) -> subprocess.Popen[str]:
        address.unlink(missing_ok=True)
        before = len(events(home / "server", "listening"))
        slow = ("--set", "every_party.chaos.delay=10ms")
        process = start("server", file, how, home / "server", *single, "--insecure", *slow)
        deadline = time.monotonic() + PATIENCE
        while len(found := events(home / "server", "listening")) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        address.write_text(found[-1]["address"])
        return process

    server = serve("--out")
    parties = [
        start("client", file, "--party", name, "--out", home / name, "--server-file", address, *shared)
        for name in names
    ]
    try:
        wait_for_round(home / "server", 2, server, "checkpoint")
        server.kill()
        server.communicate()
        server = serve("--resume")
        outputs = [finish(member) for member in (server, *parties)]
    finally:
        for member in (server, *parties):
            member.kill()
    assert [member.returncode for member in (server, *parties)] == [0] * 5, outputs
    (resume,) = events(home / "server", "resume")
    assert resume["round"] >= 10
    alone = federate(config(VIMADMM, "federation.rounds=40", "federation.epochs=0"))
    losses = {event["round"]: event["loss"] for event in events(home / "server", "round")}
    assert list(losses.values()) == [event["loss"] for event in alone.of_kind("round")]
    assert json.loads((home / "server" / "summary.json").read_text())["status"] == "completed"


def test_a_simulation_says_how_long_it_would_have_taken(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, epochs=1), tmp_path / "virtual"
    process = start("simulate", file, "--out", out, "--chaos", "party2: delay.Embedding=10s")
    output = finish(process)
    assert process.returncode == 0, output
    assert "60.0 s of delays, simulated in" in output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["clock"] == "virtual" and summary["rounds"] == 6 and len(events(out, "round")) == 6


def test_a_party_crashes_and_another_stands_still_as_its_configuration_says(tmp_path: Path) -> None:
    """Each once, although the rollback repeats the rounds."""
    quick = {"checkpoint": {"rounds": 5}, "quorum": {"deadline": 0.5}}
    file, out = write(tmp_path, {"name": "split"}, rounds=40, epochs=0, **quick), tmp_path / "run"
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


def test_parties_wait_for_a_server_that_is_stopped_and_started_again(tmp_path: Path) -> None:
    """As a service is: the server is asked to end, its parties are not told that the run has failed."""
    file = write(tmp_path, VIMADMM, rounds=60, epochs=0, checkpoint={"rounds": 5}, timeouts={"away": PATIENCE})
    address, home = tmp_path / "address", tmp_path / "members"
    slow = ("--insecure", "--set", "every_party.chaos.delay=20ms")
    server = start("server", file, "--in", home / "server", *slow, "--set", "server.listen=127.0.0.1:0")
    names = [f"party{number}" for number in range(1, 5)]
    parties = [
        start("client", file, "--party", name, "--in", home / name, "--server-file", address, *slow) for name in names
    ]
    try:
        for restart in (False, True):
            if restart:
                wait_for_round(home / "server", 2, server, "checkpoint")
                address.unlink()
                server.terminate()
                output = finish(server)
                assert server.returncode == 130 and "interrupted" in output
                assert json.loads((home / "server" / "summary.json").read_text())["status"] == "interrupted"
                assert [party.poll() for party in parties] == [None] * 4
                server = start("server", file, "--in", home / "server", *slow)
            wait_for_round(home / "server", 1 + restart, server, "listening")
            address.write_text(events(home / "server", "listening")[-1]["address"])
        outputs = [finish(member) for member in (server, *parties)]
    finally:
        for member in (server, *parties):
            member.kill()
    assert [member.returncode for member in (server, *parties)] == [0] * 5, outputs
    assert events(home / "server", "resume")[-1]["round"] >= 10
    assert [len(events(home / name, "begin")) for name in names] == [2] * 4
    assert all(events(home / name, "server_away") for name in names)
