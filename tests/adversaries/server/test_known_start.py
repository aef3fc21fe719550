"""A curious member knows the agreed seed, and must not know another's first weights, dropout, directions or rounding.

The server that knew a party's first model knew its first embeddings as a function of the columns, and solved for these.

Bounds: first models (server, party, both).
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import NAMES
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.data.draws import Draws, own_draws
from colonnade.common.errors import CheckpointError
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.state import State
from tests.support.federation import config, federate
from tests.support.in_memory import Members, agreed, members

PARTIES = ("party1", "party2", "party3")
MEMBERS = (SERVER, *PARTIES)

Starts = dict[str, dict[str, bytes]]
"""Everything drawn that members' states began with, by member and name."""


class Watch:
    """Notes what states keep as it is made, before it is restored or trained."""

    def __init__(self) -> None:
        self.noted: list[tuple[State, dict[str, bytes]]] = []

    def of(self, state: State) -> dict[str, bytes]:
        """What a state began with."""
        return {name: value for held, values in self.noted if held is state for name, value in values.items()}

    @property
    def all(self) -> dict[str, list[bytes]]:
        """The same of all states together, by name."""
        found: dict[str, list[bytes]] = {}
        for _, values in self.noted:
            for name, value in values.items():
                found.setdefault(name, []).append(value)
        return found


@contextmanager
def watched() -> Iterator[Watch]:
    watch, keep = Watch(), State.keep

    def noted(state: State, name: str, make: Callable[[], Any]) -> Any:
        def made() -> Any:
            value = make()
            watch.noted.append((state, drawn(name, value)))
            return value

        return keep(state, name, made)

    with patch.object(State, "keep", noted):
        yield watch


def drawn(name: str, value: Any) -> dict[str, bytes]:
    """What may have been drawn of an object: no constants, as of biases of batch norm."""
    if isinstance(value, nn.Module):
        parts = [drawn(f"{name}.{part}", tensor) for part, tensor in value.state_dict().items()]
        return {key: each for part in parts for key, each in part.items()}
    if isinstance(value, torch.Generator):
        value = value.get_state()
    if not isinstance(value, Tensor) or not value.numel() or bool(value.min() == value.max()):
        return {}
    return {name: value.detach().cpu().contiguous().numpy().tobytes()}


def starts(cfg: Config, secrets: dict[str, bytes]) -> Starts:
    """What members with these secrets begin with, on the virtual clock; without any, all begin in public."""

    def own(federation: FederationConfig, member: str, secret: bytes | None = None) -> Draws:
        return own_draws(federation, member, secrets.get(member, secret))

    rooms = ("colonnade.server.member.context", "colonnade.client.member.sessions")
    with watched() as watch, patch(f"{rooms[0]}.own_draws", own), patch(f"{rooms[1]}.own_draws", own):
        outcome = federate(cfg)
    states = {SERVER: outcome.server.state, **{name: ctx.state for name, ctx in outcome.clients.items()}}
    return {member: watch.of(state) for member, state in states.items()}


# What no member draws for itself: seeded noise, which these configurations ask for, the fixed groups of codes, and
# where trees start, which follows from the labels of the training rows.
ASKED = {"noise", "groups", "start"}
AT_ZERO = ("codes", "linear_admm", "secureboost", "hetero_lr")  # protocols whose models begin there
WEIGHTS = {"model", "head", "heads", "active model"}
PROTOCOLS = {
    **{
        name: ({"name": name}, ()) for name in NAMES if name not in ("additive", "scorecard")
    },  # as secureboost, hetero_lr
    "codes": ({"name": "codes", "steps": 2}, ()),
    "secureboost": ({"name": "secureboost", "gradients": "clear"}, ()),
    "vimadmm, mlp heads": ({"name": "vimadmm", "head": "mlp"}, ()),
    "c_vfl, mlp head": ({"name": "c_vfl", "head": "mlp"}, ()),
    "split, rounded": ({"name": "split"}, ("federation.compress.up=4",)),
    "split, another head": ({"name": "split"}, ("server.head=mlp",)),
    "split, a user's": ({"name": "split", "embedding": 16}, ("every_party.model=TOWER:Tower",)),
}

TOWER = """
import torch
class Tower(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(shape[0], 16))
        self.drop = torch.nn.Dropout(.5)
    def forward(self, x):
        return self.drop(x @ self.w)
"""


@pytest.mark.parametrize("case", PROTOCOLS)
def test_a_member_s_start_follows_from_its_own_secret_alone(case: str, tmp_path: Path) -> None:
    protocol, sets = PROTOCOLS[case]
    (tmp_path / "tower.py").write_text(TOWER)
    sets = tuple(each.replace("TOWER", f"{tmp_path}/tower.py") for each in sets)

    def begun(seed: int, secrets: dict[str, bytes]) -> Starts:
        few = ("federation.rows={train: 100, validation: 0, test: 50}", "federation.batch=50")
        short = (*few, "federation.epochs=0", "federation.rounds=1", "federation.parties=3", f"federation.seed={seed}")
        return starts(config(protocol, *short, *sets), secrets)

    secret = {member: bytes([number]) * 32 for number, member in enumerate(MEMBERS)}
    first = begun(0, secret)
    assert "random" in first[SERVER]
    weights = [name for member in MEMBERS for name in first[member] if name.split(".")[0] in WEIGHTS]
    assert weights or protocol["name"] in AT_ZERO
    again = begun(5, secret | {"party2": b"\1" * 31 + b"\0"})
    for member in MEMBERS:
        for name in first[member].keys() - ASKED - ({"random"} if member == "party2" else set()):
            changed = again[member][name] != first[member][name]
            assert changed == (member == "party2"), (
                f"{member}'s {name} follows from federation.seed or another's secret"
            )
    public = begun(0, {})
    for member in MEMBERS:
        for name in public[member].keys() - ASKED:
            assert public[member][name] != first[member][name], f"{member}'s {name} is public"


class Events(list[Event]):
    """Events of all members, among which that of a round is waited for."""

    def __init__(self, until: int | None) -> None:
        super().__init__()
        self.until, self.came = until, asyncio.Event()

    def append(self, event: Event) -> None:
        """Takes an event."""
        super().append(event)
        if event["kind"] == "round" and event["round"] == self.until:
            self.came.set()


async def end(there: Members, until: int | None = None) -> list[BaseException | None]:
    """Starts all members and waits for their ends, or kills all of them when a round is done."""
    there.up = True
    there.listening.clear()
    there.events = Events(until)
    tasks = [there.start(SERVER)]
    await asyncio.wait({tasks[0], asyncio.ensure_future(there.listening.wait())}, return_when=asyncio.FIRST_COMPLETED)
    tasks += [there.start(name) for name in there.config.federation.names] if not tasks[0].done() else []
    if until is not None:
        await there.events.came.wait()  # type: ignore[attr-defined]
        for task in tasks:
            task.cancel()
    return list(await asyncio.gather(*tasks, return_exceptions=True))


def run(folder: Path, *sets: str, until: int | None = None) -> tuple[Members, list[Any], Watch]:
    folder.mkdir(parents=True, exist_ok=True)
    with watched() as watch, members(folder, agreed("federation.public_start=false", *sets)) as there:
        return there, run_virtual(end(there, until)), watch


def models(there: Members) -> dict[str, bytes]:
    """The last checkpoint's tensors of every member."""
    found = {}
    for member in (SERVER, *there.config.federation.names):
        newest = max(there.home(member).glob("checkpoints/*.safetensors"), key=lambda path: path.name)
        found[member] = newest.read_bytes()
    return found


def test_runs_with_one_configuration_begin_differently_but_in_public(tmp_path: Path) -> None:
    (one, ended, first), (_, _, second) = run(tmp_path / "one"), run(tmp_path / "two")
    assert ended == [None] * len(ended)
    public, again, elsewhere = (
        run(tmp_path / f"public{number}", "federation.public_start=true", f"federation.seed={seed}")[2].all
        for number, seed in enumerate((0, 0, 1))
    )
    known = {value for values in public.values() for value in values}
    assert again == public and len(set(public["model.1.weight"])) == len(one.config.federation.names)
    for name, values in public.items():
        assert not set(values) & set(elsewhere[name]), f"{name} is the same whatever the seed is"
    assert first.all.keys() == second.all.keys() and "model.1.weight" in first.all and "head.weight" in first.all
    for name, values in first.all.items():
        assert not set(values) & (known | set(second.all[name])), name
        assert len(set(values)) == len(values), f"two members begin with the same {name}"
    names = one.config.federation.names
    files = {member: one.home(member) / "start.secret" for member in (SERVER, *names)}
    assert len({path.read_bytes() for path in files.values()}) == 1 + len(names)
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    every = ("federation.checkpoint={rounds: 2}",)
    there, _, watch = run(tmp_path / "killed", *every, until=1)  # before any checkpoint
    assert not list(tmp_path.glob("killed/*/checkpoints/*.safetensors"))
    whole = tmp_path / "whole"
    for member in (SERVER, *there.config.federation.names):
        (whole / member).mkdir(parents=True)
        shutil.copy(there.home(member) / "start.secret", whole / member)
    undisturbed, ended, _ = run(whole, *every)
    assert ended == [None] * len(ended)
    _, _, again = run(tmp_path / "killed", *every, until=3)  # with a checkpoint
    assert again.all == watch.all
    there, ended, _ = run(tmp_path / "killed", *every)
    assert ended == [None] * len(ended)
    assert models(there) == models(undisturbed)


@pytest.mark.parametrize("member", [SERVER, "party1"])
@pytest.mark.parametrize("until", [1, 3])
def test_without_a_member_s_secret_its_run_does_not_go_on(tmp_path: Path, member: str, until: int) -> None:
    there, _, _ = run(tmp_path, "federation.checkpoint={rounds: 2}", until=until)
    before = {name: there.files(name) for name in (SERVER, *there.config.federation.names)}
    (there.home(member) / "start.secret").unlink()
    _, ended, watch = run(tmp_path, "federation.checkpoint={rounds: 2}")
    lost = [error for error in ended if isinstance(error, CheckpointError)]
    assert [str(error).endswith("start.secret is missing, which the run began with") for error in lost] == [True]
    assert not watch.all  # nobody began
    assert there.files(member) == {name: data for name, data in before[member].items() if name != "start.secret"}


def test_a_run_of_0_2_0_goes_on_as_it_began(tmp_path: Path) -> None:
    every = ("federation.checkpoint={rounds: 2}",)
    there, _, watch = run(tmp_path / "old", *every, "federation.public_start=true", until=1)
    for path in tmp_path.glob("old/*/*.json"):  # which says nothing of starts, as that version wrote it
        if path.name in ("pinned.json", "run.json"):
            record = json.loads(path.read_text())
            assert record.pop("start") == "public"
            record.pop("checksum", None)
            path.write_text(json.dumps(record))
    there, ended, again = run(tmp_path / "old", *every)
    assert ended == [None] * len(ended) and again.all == watch.all
    assert not list(tmp_path.glob("old/*/start.secret"))
    summary = json.loads((there.home(SERVER) / "summary.json").read_text())
    assert summary["start"] == "public"


def test_no_secret_leaves_its_file(tmp_path: Path) -> None:
    there, _, _ = run(tmp_path, "every_party.capture={}")
    for member in (SERVER, *there.config.federation.names):
        secret = (there.home(member) / "start.secret").read_bytes()[:32]
        for path in tmp_path.rglob("*"):
            if path.is_file() and path.name != "start.secret":
                content = path.read_bytes()
                assert secret not in content and secret.hex().encode() not in content, path
    assert Checkpoints(there.home("party1") / "checkpoints").usable()
