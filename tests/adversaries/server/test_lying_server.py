"""A scripted server breaks one rule after the other in a round: the party names it, or goes on as documented.

Bounds: messages (server).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from colonnade.common.conversation.parcels import Begin, Failure, Open, Save
from colonnade.common.errors import ContractError, EnvironmentFault, TrainingDiverged
from colonnade.common.protocols.split import Embedding, Evaluation, Gradient
from colonnade.common.wire.frame import pack
from tests.support.false_server import FalseServer, ServerPuppet, gradient, scripted
from tests.support.in_memory import ROWS, WIDTH

Answer = Callable[[ServerPuppet], None]
"""The server's answer to the embedding of round 2, in the place of its gradient."""


def entry(value: float) -> Gradient:
    sent = gradient(2)
    sent.dh[3, 1] = value
    return sent


def framed(line: ServerPuppet, session: int | None = None) -> bytes:
    return pack(gradient(2), line.session if session is None else session, line.codec)


async def two_rounds(server: FalseServer, answer: Answer) -> tuple[ServerPuppet, BaseException | None]:
    party, line = await server.begun()
    await line.round(1)
    line.send(Open(2))
    await line.hear(Embedding)
    answer(line)
    return line, await server.error(party)


ENDS: dict[str, tuple[Answer, str]] = {
    "not a number": (
        lambda line: line.send(entry(math.nan)),
        "server sent Gradient.dh: expected finite numbers, got 1 of 32 not finite",
    ),
    "infinity": (
        lambda line: line.send(entry(-math.inf)),
        "server sent Gradient.dh: expected finite numbers, got 1 of 32 not finite",
    ),
    "a row more": (
        lambda line: line.send(gradient(2, rows=ROWS + 1)),
        r"server sent Gradient.dh: expected rows <= 8 in dimension 0, got shape \(9, 4\)",
    ),
    "a row less": (
        lambda line: line.send(gradient(2, rows=ROWS - 1)),
        r"server sent Gradient.dh: expected rows = 8 in dimension 0, got shape \(7, 4\)",
    ),
    "a round far ahead": (
        lambda line: line.send(gradient(2**31)),
        "server sent Gradient.round: expected at most 34, got 2147483648",
    ),
    "a party's message": (
        lambda line: line.send(Evaluation(2, "test", 0, torch.ones(ROWS, WIDTH))),
        "server sent Evaluation: expected one of Gradient, got a message of parties",
    ),
    "half a frame": (lambda line: line.send_bytes(framed(line)[:-20]), "server sent a frame: expected 158 bytes mo"),
    "three bytes": (lambda line: line.send_bytes(framed(line)[:3]), "server sent a frame: expected"),
    "a frame of no session": (
        lambda line: line.send_bytes(framed(line, session=0)),
        "server sent a frame: expected parcels of session 1, got Letter of none",
    ),
    "a checkpoint of the round before": (
        lambda line: line.send(Save(1)),
        "server sent Save.round: expected 2, the newest open round, got 1",
    ),
    "a second Begin": (lambda line: line.send(Begin(9, run="run1")), "server sent Begin: expected what belongs to a"),
}


@pytest.mark.parametrize(("answer", "said"), ENDS.values(), ids=ENDS)
async def test_the_party_ends_and_names_the_server(tmp_path: Path, answer: Answer, said: str) -> None:
    with scripted(tmp_path) as server:
        line, error = await two_rounds(server, answer)
        assert isinstance(error, ContractError)
        with pytest.raises(ContractError, match=said):
            raise error
        assert len(line.said(Embedding)) == 2


async def learned(server: FalseServer, after: Answer) -> torch.Tensor:
    """The embedding of round 3, once a lie was told in round 2."""
    party, line = await server.begun()
    await line.round(1, -0.02)
    line.send(Open(2))
    await line.hear(Embedding)
    after(line)
    line.send(Open(3))
    sent = await line.hear(Embedding)
    line.cut()
    server.there.up = False
    assert isinstance(await server.error(party), EnvironmentFault)  # it has dialled again
    return sent.h


NO_EFFECT: dict[str, Answer] = {
    "the gradient of the round before": lambda line: line.send(gradient(1, -0.09), gradient(2, -0.02)),
    "the gradient twice, with other numbers": lambda line: line.send(gradient(2, -0.02), gradient(2, -0.09)),
    "a frame of an older session": lambda line: [
        line.send(gradient(2, -0.09), session=77),
        line.send(gradient(2, -0.02)),
    ],
    "an empty frame": lambda line: [line.send_bytes(b""), line.send(gradient(2, -0.02))],
}


async def test_they_change_no_bit_of_what_the_party_learns(tmp_path: Path) -> None:
    found: dict[str, torch.Tensor] = {}
    honest, wrong = (lambda line: line.send(gradient(2, -0.02))), (lambda line: line.send(gradient(2, -0.09)))
    for name, one in {"honest": honest, "wrong": wrong, **NO_EFFECT}.items():
        with scripted(tmp_path / name) as server:
            found[name] = await learned(server, one)
    unlike = [name for name, values in found.items() if not torch.equal(values, found["honest"])]
    assert unlike == ["wrong"]


async def test_a_gradient_that_makes_the_party_diverge_is_told_by_the_party_itself(tmp_path: Path) -> None:
    """The largest finite number passes every check; the party then has nothing finite to send."""

    with scripted(tmp_path) as server:
        party, line = await server.begun()
        await line.round(1, 3.4e38)
        line.send(Open(2))
        assert "not finite" in (await line.hear(Failure)).reason
        line.cut()
        assert isinstance(await server.error(party), TrainingDiverged) and len(line.said(Embedding)) == 1
