"""Parcels between a real server and real parties, swapped, dropped and repeated in every state of a run.

Of five protocols: embeddings in the clear, duals, blinded sums, coded sums, and one that learns from arrivals. And of
one that first aligns the members' tables.

Bounds: messages (both).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from colonnade.client.membership.instructions import Instructions
from colonnade.common.alignment.messages import all_kinds
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import ColonnadeError, ContractError
from colonnade.common.messaging.message import ServerMessage
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.split import Gradient
from tests.support import in_memory
from tests.support.federation import config
from tests.support.in_memory import ROUNDS, WIDTH, members
from tests.support.relay import QUIET, Fault, Relay
from tests.support.tables import table_tree, write_tables

EXAMPLES = int(os.environ.get("COLONNADE_SCRIPTS", "0"))
"""Scripts of each protocol to try, drawn at random; by default few, and the same ones in every run."""
SPLIT, ALIGNED = "split", "aligned"
PAIRS = bool(os.environ.get("COLONNADE_PAIRS"))
"""True if every fault of one parcel is tried, some 400 to 1200 of a protocol, or two of them."""
PROTOCOLS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    SPLIT: ({"name": "split", "embedding": WIDTH}, 6),
    "duals": ({"name": "vimadmm"}, 2),
    "blinded": ({"name": "split_avg", "embedding": WIDTH, "aggregate": "blinded"}, 2),
    "coded": ({"name": "fedvs", "embedding": WIDTH, "segments": 1, "stragglers": 0}, 2),
    "arrivals": ({"name": "vafl", "embedding": WIDTH, "arrivals": True}, 2),
    ALIGNED: ({"name": "split", "embedding": WIDTH}, 2),
}
"""Protocols, and the number of scripts that every run tries."""
SETS = ("federation.checkpoint.rounds=1", "federation.transcript.every=2", "federation.batch=256")
BOUND = 3 * QUIET + 120
"""Virtual seconds within which all members end: three silences that the relay ends, and the members' time limits."""
DOWN = ("Welcome", "Begin", "Open", "Statement", "Save", "Close", "Farewell", "Rewind", "Refusal", "Failure")
UP = ("Hello", "Statement", "Saved", "Farewell", "Failure")


@cache
def told(protocol: str) -> Config:
    if protocol != ALIGNED:
        return config(PROTOCOLS[protocol][0], *in_memory.SETS, *SETS)
    tables = table_tree(2, protocol=PROTOCOLS[protocol][0], keys={"seeded": True})  # else no two runs are the same
    return parse(tables, (*in_memory.SETS, *SETS, "federation.batch=8"))


@cache
def messages(protocol: str, *, server: bool) -> tuple[str, ...]:
    """Kinds of a protocol's messages, keys among them, of the server or of a party."""
    federation = told(protocol).federation
    kinds = all_kinds(federation, CONTRACTS[federation.protocol.name])
    return tuple(name for name, kind in kinds.items() if issubclass(kind, ServerMessage) == server)


def learned(end: End) -> bool:
    """True if a fault may have changed what is learned: it took a message away. TLS lets no stranger do so.

    Where messages count as they come, any delay and any repetition of one changes it too.
    """
    kinds = {*messages(end.protocol, server=True), *messages(end.protocol, server=False)}
    struck = end.relay.struck
    if end.protocol == "arrivals":
        return bool(struck)
    return any(fault.kind in kinds for fault in struck if fault.act in ("drop", "hold"))


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
        protocol: the key in `PROTOCOLS`.
    """

    errors: Mapping[str, BaseException | None]
    models: Mapping[str, Model | None]
    seconds: float
    relay: Relay
    events: tuple[Event, ...] = ()
    protocol: str = SPLIT


def disturbed(*faults: Fault, protocol: str = SPLIT) -> End:
    """Runs a federation whose parcels a relay disturbs."""

    async def main(folder: Path) -> End:
        if protocol == ALIGNED:
            write_tables(folder, 2, persons=40)
        with members(folder, told(protocol)) as there:
            relay = Relay(there, faults)
            complain = lambda _loop, context: relay.wrongs.append(f"asyncio: {context['message']}")  # noqa: E731
            asyncio.get_running_loop().set_exception_handler(complain)
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
        return End(dict(zip(names, ended, strict=True)), models, seconds, relay, tuple(there.events), protocol)

    with TemporaryDirectory() as folder:
        return run_virtual(main(Path(folder)))


def _read(path: Path) -> Model | None:
    """All but torch's generator, which the members of one process share: the last that begins a session seeds it."""
    if not path.exists():
        return None
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items() if name != "random"}


@cache
def undisturbed(protocol: str = SPLIT) -> End:
    return disturbed(protocol=protocol)


def check(end: End) -> None:
    """Fails if a member broke a rule, ended with an error that it does not declare, or with another model."""
    assert not end.relay.wrongs
    undeclared = {name: error for name, error in end.errors.items() if not isinstance(error, ColonnadeError | None)}
    assert not undeclared
    if learned(end):
        return
    whole = {name: end.models[name] for name, error in end.errors.items() if error is None}
    assert whole == {name: undisturbed(end.protocol).models[name] for name in whole}


def faults(kinds: tuple[str, ...]) -> st.SearchStrategy[Fault]:
    acts = st.sampled_from(("drop", "repeat", "hold", "again", "unbound", "delay", "cut"))
    parties, number = st.sampled_from(("party1", "party2")), st.integers(0, 4)
    return st.builds(Fault, acts, st.sampled_from(kinds), parties, number, st.sampled_from((*kinds, "")))  # type: ignore[arg-type]


def scripts(protocol: str) -> st.SearchStrategy[list[Fault]]:
    down, up = (*DOWN, *messages(protocol, server=True)), (*UP, *messages(protocol, server=False))
    return st.lists(st.one_of(faults(down), faults(up)), min_size=1, max_size=4)


@pytest.mark.timeout(0 if EXAMPLES else 120)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_script_of_faults_breaks_a_rule(protocol: str) -> None:
    @settings(
        max_examples=EXAMPLES or PROTOCOLS[protocol][1], derandomize=not EXAMPLES, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None,
    )  # fmt: skip
    @given(scripts(protocol))
    def tried(script: list[Fault]) -> None:
        check(disturbed(*script, protocol=protocol))

    tried()


def every(protocol: str) -> list[Fault]:
    """Each parcel of a party dropped, repeated, and swapped with the next of each other kind in its direction."""
    seen = {(kind, up): n for (name, kind, up), n in undisturbed(protocol).relay.seen.items() if name == "party1"}
    found = list[Fault]()
    for (kind, up), count in seen.items():
        others = [other for other, way in seen if way == up and other != kind]
        for number in range(count):
            found += [Fault(act, kind, "party1", number) for act in ("drop", "repeat")]  # type: ignore[arg-type]
            found += [Fault("hold", kind, "party1", number, other) for other in others]
    return list(dict.fromkeys(found))


@pytest.mark.timeout(0 if PAIRS else 120)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_pair_of_kinds_breaks_a_rule(protocol: str) -> None:
    faults, kinds = every(protocol), {kind for _, kind in undisturbed(protocol).relay.passed}
    assert kinds == {fault.kind for fault in faults}
    for fault in faults if PAIRS else (faults[len(faults) // 3], faults[2 * len(faults) // 3]):
        end = disturbed(fault, protocol=protocol)
        check(end)
        assert fault in end.relay.struck


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_undisturbed_run_ends_well_and_at_once(protocol: str) -> None:
    end = undisturbed(protocol)
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
