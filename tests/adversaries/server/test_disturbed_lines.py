"""Parcels between a real server and real parties, swapped, dropped and repeated in every state of a run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from colonnade.client.membership.instructions import Instructions
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import ColonnadeError, ContractError
from colonnade.common.observability.telemetry import Event
from colonnade.common.protocols.split import Gradient
from tests.support.in_memory import ROUNDS, agreed, members
from tests.support.relay import QUIET, Fault, Relay

EXAMPLES = int(os.environ.get("COLONNADE_SCRIPTS", "0"))
"""Scripts to try, drawn at random; by default few, and the same ones in every run."""
SETS = ("federation.checkpoint.rounds=1", "federation.transcript.every=2", "federation.batch=256")
BOUND = 3 * QUIET + 120
"""Virtual seconds within which all members end: three silences that the relay ends, and the members' time limits."""
# Whoever drops one of these, or delivers it after its round, changes what is learned. TLS lets no stranger do so.
LEARNED = ("Embedding", "Gradient", "Evaluation")

DOWN = (
    "Welcome",
    "Begin",
    "Open",
    "Gradient",
    "Statement",
    "Save",
    "Close",
    "Farewell",
    "Rewind",
    "Refusal",
    "Failure",
)
UP = ("Hello", "Embedding", "Evaluation", "Statement", "Saved", "Farewell", "Failure")


Model = Mapping[str, bytes]


@dataclass(frozen=True)
class End:
    """How a federation ended.

    Args:
        errors: of the members; None at the end of the run.
        models: the tensors of every member's last checkpoint, in bytes; None if it has none of the last round.
        seconds: on the virtual clock.
        relay: which disturbed it.
        events: of all members.
    """

    errors: Mapping[str, BaseException | None]
    models: Mapping[str, Model | None]
    seconds: float
    relay: Relay
    events: tuple[Event, ...] = ()


def disturbed(*faults: Fault, sets: tuple[str, ...] = ()) -> End:
    """Runs a federation whose parcels a relay disturbs."""

    async def main(folder: Path) -> End:
        with members(folder, agreed(*SETS, *sets)) as there:
            relay = Relay(there, faults)
            there.through = relay.through
            with relay.watched():
                names = (SERVER, *there.config.federation.names)
                tasks = {name: there.start(name) for name in names}
                cutting = asyncio.ensure_future(relay.end_silences())
                _, left = await asyncio.wait(tasks.values(), timeout=BOUND)
                seconds = asyncio.get_running_loop().time()
                cutting.cancel()
                relay.wrongs += [f"{name} hangs" for name, task in tasks.items() if task in left]
                for task in left:
                    task.cancel()
                ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        last = f"checkpoints/round-{ROUNDS:08}.safetensors"
        models = {name: _read(folder / name / last) for name in names}
        return End(dict(zip(names, ended, strict=True)), models, seconds, relay, tuple(there.events))

    with TemporaryDirectory() as folder:
        return run_virtual(main(Path(folder)))


def _read(path: Path) -> Model | None:
    """All but torch's generator, which the members of one process share: the last that begins a session seeds it."""
    if not path.exists():
        return None
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items() if name != "random"}


@cache
def undisturbed() -> End:
    return disturbed()


def check(end: End) -> None:
    """Fails if a member broke a rule, ended with an error that it does not declare, or with another model."""
    assert not end.relay.wrongs
    undeclared = {name: error for name, error in end.errors.items() if not isinstance(error, ColonnadeError | None)}
    assert not undeclared
    if any(fault.kind in LEARNED for fault in end.relay.struck if fault.act in ("drop", "hold")):
        return
    whole = {name: end.models[name] for name, error in end.errors.items() if error is None}
    assert whole == {name: undisturbed().models[name] for name in whole}


def faults(kinds: tuple[str, ...]) -> st.SearchStrategy[Fault]:
    acts = st.sampled_from(("drop", "repeat", "hold", "again", "unbound", "delay", "cut"))
    parties, number = st.sampled_from(("party1", "party2")), st.integers(0, 4)
    return st.builds(Fault, acts, st.sampled_from(kinds), parties, number, st.sampled_from((*kinds, "")))  # type: ignore[arg-type]


SCRIPTS = st.lists(st.one_of(faults(DOWN), faults(UP)), min_size=1, max_size=4)


@settings(
    max_examples=EXAMPLES or 12, derandomize=not EXAMPLES, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(SCRIPTS)
def test_no_script_of_faults_breaks_a_rule(script: list[Fault]) -> None:
    check(disturbed(*script))


def test_an_undisturbed_run_ends_well_and_at_once() -> None:
    end = undisturbed()
    assert set(end.errors.values()) == {None} and None not in end.models.values()
    assert end.seconds == 0 and not end.relay.silences and not end.relay.wrongs


def test_a_parcel_of_an_ended_connection_reaches_no_protocol_side() -> None:
    """It comes without a session on the new line, while the server waits for another party."""
    script = (
        Fault("unbound", "Embedding", "party1", 0, "Hello"),
        Fault("cut", "Embedding", "party1", 1),
        Fault("cut", "Embedding", "party2", 1),
        Fault("delay", "Hello", "party2", 1),
    )
    end = disturbed(*script)
    check(end)
    assert end.relay.struck == set(script) and "nothing before Begin" in str(end.errors["party1"])


def test_a_lost_connection_costs_no_bit() -> None:
    end = disturbed(Fault("cut", "Gradient", "party1", 2))
    check(end)
    assert end.relay.struck and set(end.errors.values()) == {None}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("hold", "Saved", "party1", 1, "Farewell"), None),
        (Fault("drop", "Saved", "party1", 2), "party1 was lost: no checkpoint of round 4 within 20 s"),
    ],
    ids=["of round 2, until the end", "of the last round"],
)
def test_a_party_whose_checkpoint_is_not_confirmed_is_named_alone(fault: Fault, error: str | None) -> None:
    end = disturbed(fault)
    check(end)
    failed = [event for event in end.events if "has not confirmed" in event.get("reason", "")]
    assert [(event["party"], event["round"]) for event in failed] == ([] if error else [("party1", 2)])
    assert (str(end.errors["server"]) if error else end.errors["server"]) == error
    assert end.seconds == 20 and end.relay.silences == 0


def test_the_checks_can_fail() -> None:
    sound = undisturbed()
    check(sound)
    for wrong in (
        replace(sound, errors={**sound.errors, "party1": ValueError("undeclared")}),
        replace(sound, models={**sound.models, "party1": {}}),
    ):
        with pytest.raises(AssertionError):
            check(wrong)
    dropped = disturbed(Fault("drop", "Gradient", "party1", 1))
    assert dropped.models["party1"] != sound.models["party1"]


def test_a_party_that_checks_no_instructions_is_found() -> None:
    with patch.object(Instructions, "check", lambda _self, _item: None):
        end = disturbed(Fault("repeat", "Open", "party1", 1))
    assert end.relay.wrongs == ["a party side was taken back from round 2 to 2"]


def test_a_server_that_hears_before_begin_is_found() -> None:
    relay = undisturbed().relay
    found = replace(relay, wrongs=[])
    with found.watched(), contextlib.suppress(ContractError):
        Link("party1", {}, {}, lambda _item: None, Mailbox()).deliver(Gradient(1, torch.zeros(1, 1)))
    assert found.wrongs == ["the server side got Gradient from party1 outside of a session"]
