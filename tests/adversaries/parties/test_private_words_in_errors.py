"""An error's own text stays with its member: others read the text that the error declares for them.

Bounds: no cell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import grpc
import pytest

import colonnade
from colonnade.client.member.process import PartyMember
from colonnade.common.aggregation.masks import BlindError
from colonnade.common.aggregation.summed_sets import SetError
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.sealing import SealError, TranscriptError
from colonnade.common.crypto.signatures import ForgedError
from colonnade.common.errors import (
    BudgetSpent,
    ColonnadeError,
    ContractError,
    DataError,
    EnvironmentFault,
    FloodError,
    MemberFailed,
    PartyFailed,
    PartyLost,
    RefusedError,
    TrainingDiverged,
    declared,
)
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.file import parse
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.state import Snapshot
from colonnade.server.member.training import ServerRun
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.run import PredictionRun
from colonnade.server.prediction.serving.grpc_service import METHOD, Remote
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.prediction.terms import PredictionTerms
from tests.support.federation import tree
from tests.support.tables import table_tree, write_tables
from tests.support.towers import declare_operators

SECRET = "row 17 has income 1.000"

TOWER = f'''
from pathlib import Path

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, shape, when):
        super().__init__()
        self.linear, self.when = nn.Linear(shape[0], 60), Path(when)

    def forward(self, x):
        if self.when.exists() and x.abs().sum() > 0:  # rows, and not the try whether it fits
            raise ValueError("{SECRET}")
        return self.linear(x)


class Head(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x):
        if len(x) > 100:  # a batch, and not the try whether it fits
            raise RuntimeError("{SECRET}")
        return self.linear(x)


def broken(shape):
    raise KeyError("{SECRET}")
'''

# Errors sent to others verbatim: their messages have names, kinds, counts and durations, and never quote data.
WHOLE = {
    ContractError, FloodError, RefusedError, PartyFailed, PartyLost, BudgetSpent, TranscriptError, SetError, SealError,
    ForgedError, BlindError,
}  # fmt: skip


class Scene:
    """A server and two parties over gRPC in one loop, each with a folder; `errors` has the error that ended each."""

    def __init__(self, folder: Path, **sections: dict[str, Any]) -> None:
        (folder / "code").mkdir()
        (folder / "code" / "tower.py").write_text(TOWER)
        made = tree({"name": "split"}, parties=2, epochs=1, **sections.get("federation", {}))
        made["federation"]["timeouts"] = {"away": 20, "answer": 20}
        made["server"] |= sections.get("server", {})
        made["parties"] = {"party1": sections.get("party", {}), "party2": {}}
        self.config: Config = parse(made)
        self.folder, self.errors, self._address = folder, dict[str, BaseException](), ""

    def home(self, name: str) -> Path:
        return self.folder / name

    def train(self) -> None:
        for name in (SERVER, *self.config.federation.names):
            self.home(name).mkdir()
        asyncio.run(asyncio.wait_for(self._all(self._server(), answers=False), 60))

    def ask(self) -> None:
        async def work(model: Model) -> None:
            await model.say(["1", "2"])

        assert self.config.server is not None
        asking = PredictionRun(
            self.config.federation, self.config.server, self.folder / "code", self.home(SERVER), work,
            terms=PredictionTerms(secure=False), listeners=(self._hear,),
        )  # fmt: skip
        self.errors.clear()
        self._address = ""
        asyncio.run(asyncio.wait_for(self._all(asking, answers=True), 60))

    def read_by_others(self, than: str) -> str:
        """Contents of all other members' folders, and all that they would print."""
        homes = [self.home(name) for name in (SERVER, *self.config.federation.names) if name != than]
        files = [path for home in homes for path in home.rglob("*") if path.is_file()]
        said = [f"{error} {getattr(error, 'hint', '')}" for name, error in self.errors.items() if name != than]
        return "\n".join([*(path.read_bytes().decode("latin-1") for path in files), *said])

    def _server(self) -> ServerRun:
        assert self.config.server is not None
        federation, out = self.config.federation, self.home(SERVER)
        return ServerRun(
            federation, self.config.server, self.folder / "code", out, secure=False, listeners=(self._hear,)
        )

    def _hear(self, event: Event) -> None:
        if event["kind"] == "listening":
            self._address = event["address"]

    async def _all(self, first: ServerRun | PredictionRun, *, answers: bool) -> None:
        parties = {
            name: PartyMember(
                name, self.config.federation, self.config.parties[name], self.folder / "code", self.home(name),
                secure=False, find_address=lambda: self._address, answers=answers,
            )
            for name in self.config.federation.names
        }  # fmt: skip

        async def member(name: str, run: ServerRun | PredictionRun | PartyMember) -> None:
            try:
                await run.run()
            except Exception as error:  # noqa: BLE001  # to be looked at
                self.errors[name] = error

        members = {SERVER: first, **parties}
        await asyncio.gather(*(member(name, run) for name, run in members.items()))


def own(name: str, **more: str) -> dict[str, Any]:
    return {"model": {"file": f"./tower.py:{name}", **more}}


def test_a_tower_that_quotes_a_row_does_so_at_home_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, party=own("Tower", when=str(tmp_path)))
    scene.train()
    assert SECRET in str(scene.errors["party1"])
    assert "income" not in scene.read_by_others("party1")
    assert "its own model or plug-in has failed" in str(scene.errors[SERVER])
    assert "its own log says more" in str(getattr(scene.errors[SERVER], "hint", ""))


def test_a_tower_that_cannot_be_built_names_no_file_and_no_reason_to_others(tmp_path: Path) -> None:
    scene = Scene(tmp_path, party=own("broken"))
    scene.train()
    assert SECRET in str(scene.errors["party1"])
    seen = scene.read_by_others("party1")
    assert "income" not in seen and "party1 failed: it cannot go on with its own configuration" in seen
    assert "tower.py" not in str(scene.errors[SERVER])


def test_a_head_that_quotes_a_label_does_so_at_the_server_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, server={"head": {"file": "./tower.py:Head"}})
    scene.train()
    assert SECRET in str(scene.errors[SERVER])
    assert "income" not in scene.read_by_others(SERVER)
    assert "its own model or plug-in has failed" in str(scene.errors["party2"])


def test_a_key_that_is_of_no_use_is_named_at_home_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_tables(tmp_path / "code", persons=40)
    table = tmp_path / "code" / "party1.csv"
    header, first, *others = table.read_text().splitlines()
    key, _, values = first.partition(",")
    again = key.replace("0", "\N{FULLWIDTH DIGIT ZERO}")  # the same key as members compare them
    table.write_text("\n".join([header, first, f"{again},{values}", *others]) + "\n")
    made = table_tree(epochs=1, batch=8, timeouts={"away": 20, "answer": 20})
    scene.config = parse(made)
    scene.train()
    assert isinstance(scene.errors["party1"], DataError)
    assert key not in str(scene.errors[SERVER]) + str(scene.errors.get("party2", ""))
    assert "party1 failed: it cannot go on with its own data" in str(scene.errors[SERVER])


def test_of_a_checkpoint_that_fails_the_server_reads_no_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="checkpoints") as failed:
        Checkpoints(tmp_path / "file" / "checkpoints").save(3, Snapshot({}, {}), Owner("party1", "run"))
    said = " ".join(declared(failed.value))
    assert str(tmp_path) not in said and said.startswith("the checkpoint of round 3 cannot be written: Not a directory")


def test_a_tower_that_quotes_a_row_when_it_is_asked_for_a_prediction_does_so_at_home_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, party=own("Tower", when=str(tmp_path / "now")))
    scene.train()
    assert not scene.errors
    (tmp_path / "now").touch()
    scene.ask()
    assert SECRET in str(scene.errors["party1"])
    assert "income" not in scene.read_by_others("party1")
    assert "its own model or plug-in has failed" in str(scene.errors[SERVER])


def subclasses(kind: type[ColonnadeError]) -> Iterator[type[ColonnadeError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def every_error() -> list[type[ColonnadeError]]:
    """The error classes of all modules, each of which is imported."""
    import importlib
    import pkgutil

    declare_operators()
    for found in pkgutil.walk_packages(colonnade.__path__, "colonnade."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    return sorted(set(subclasses(ColonnadeError)), key=lambda kind: kind.__name__)


def make(kind: type[ColonnadeError], text: str) -> ColonnadeError:
    if issubclass(kind, ContractError):
        return kind("party1", "Embedding", "h", "numbers", text)
    if kind is TrainingDiverged:
        return TrainingDiverged("party1", text)
    if issubclass(kind, PartyLost | PartyFailed | MemberFailed):
        return kind("party1", text, hint=text)
    if kind is TranscriptError:
        return TranscriptError(text, other="party2", part="round 1")
    return kind(text, hint=text)


def test_only_reviewed_errors_are_sent_verbatim() -> None:
    kinds = every_error()
    assert len(kinds) > 15
    verbatim = {kind for kind in kinds if SECRET in " ".join(declared(make(kind, SECRET)))}
    assert verbatim == WHOLE


@pytest.mark.parametrize("error", [ValueError(SECRET), KeyError(SECRET), OSError(2, SECRET, f"/home/{SECRET}")])
def test_of_an_unforeseen_error_only_the_type_is_sent(error: Exception) -> None:
    said = " ".join(declared(error))
    assert SECRET not in said and "Error" in said


def test_the_name_of_a_user_defined_class_is_not_sent() -> None:
    assert "income" not in " ".join(declared(type("income_is_1000", (ValueError,), {})("x")))


def test_a_declared_text_is_sent_without_the_message_and_in_one_line() -> None:
    error = DataError(f"column 'town': {SECRET}", hint=f"mend {SECRET}", shared="its table\nhas changed")
    assert declared(error) == ("its table has changed", "its own log says more")
    assert "/home" not in " ".join(declared(EnvironmentFault("/home/ada is full", hint="/home/ada")))


def test_a_caller_of_the_grpc_service_reads_no_text_of_an_unforeseen_error() -> None:
    class Broken:
        async def ask(self, _ids: object) -> None:
            raise ValueError(SECRET)

    class Everybody(Tokens):
        def __init__(self) -> None: ...

        def admit(self, _shown: str, _ids: int) -> None: ...  # type: ignore[override]

        def seat(self, _shown: str) -> nullcontext[None]:
            return nullcontext()

    async def scene() -> str | None:
        from colonnade.common.wire._generated.serving_pb2 import PredictReply, PredictRequest

        remote = Remote(Broken(), Everybody())  # type: ignore[arg-type]
        address = await remote.start("127.0.0.1:0", None)
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                ask = channel.unary_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ask(PredictRequest(ids=["1"]))
                return refused.value.details()
        finally:
            await remote.stop()

    assert asyncio.run(scene()) == "an unforeseen error"
