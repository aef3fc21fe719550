"""A scripted party at a real server breaks one rule after the other: it is named, or the run goes on as documented.

Bounds: messages (party); a party's noise (party).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.parcels import Failure, Farewell, Hello, Parcel, Saved, Spent, Statement
from colonnade.common.errors import ContractError, PartyFailed, PartyLost, RefusedError, TrainingDiverged
from colonnade.common.protocols.split import Embedding, Evaluation
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import pack
from tests.support.false_party import LIAR, Answer, Lie, Scene, at, lied
from tests.support.in_memory import ROUNDS, WIDTH

CODEC = Codec(CONTRACTS["split"].kinds)
SLOW = 20  # seconds that a party has for a message

Change = Callable[[Tensor], Tensor]


@cache
def sound() -> Scene:
    with TemporaryDirectory() as folder:
        return lied(Path(folder))


def values(round: int, change: Change) -> Lie:
    """Other numbers in one round's embedding."""
    return at(Embedding, round, lambda sent: [replace(sent, h=change(sent.h))])


def entry(value: float) -> Change:
    def change(h: Tensor) -> Tensor:
        h = h.clone()
        h[3, 1] = value
        return h

    return change


def frame(cut: Callable[[bytes], list[bytes]], session: int | None = None) -> Lie:
    """The second embedding's frame, cut into others, in the present session or another one."""

    def change(sent: Embedding) -> Iterable[Answer]:
        whole = lambda now: pack(sent, now if session is None else session, CODEC)  # noqa: E731
        count = len(cut(whole(0)))
        return [lambda now, part=part: cut(whole(now))[part] for part in range(count)]  # type: ignore[misc]

    return at(Embedding, 2, change)


def late(seconds: float, round: int = 2) -> Lie:
    """A slow writer: all parcels wait behind one."""
    seen = 0

    async def lie(parcel: Parcel) -> Iterable[Answer]:
        nonlocal seen
        seen += isinstance(parcel, Embedding)
        if isinstance(parcel, Embedding) and seen == round:
            await asyncio.sleep(seconds)
        return (parcel,)

    return lie


def ones(round: int, part: str = "test", block: int = 0, rows: int = 256) -> Evaluation:
    return Evaluation(round, part, block, torch.ones(rows, WIDTH))


def test_scripted_parties_that_do_as_agreed_come_to_the_end() -> None:
    assert sound().error is None and sorted(sound().losses) == list(range(1, ROUNDS + 1))
    assert not [event for event in sound().events if event["kind"] in ("refused", "leave", "late", "warning", "failed")]


ENDS: dict[str, tuple[Lie, type[Exception], str]] = {
    # numbers at the edge of checks
    "not a number": (
        values(1, entry(math.nan)), TrainingDiverged,
        "party2 diverged by round 1: it sent Embedding.h: expected finite numbers, got 1 of 1024 not finite",
    ),
    "infinity": (values(3, entry(-math.inf)), TrainingDiverged, "party2 diverged by round 3: it sent Embedding.h"),
    "the largest float": (
        values(3, entry(3.4e38)), TrainingDiverged,
        r"party2 diverged by round 3: its Embedding.h has grown 4.8e\+38 times since round 3",
    ),
    "the largest float in the first round": (
        values(1, entry(3.4e38)), TrainingDiverged,
        r"party2 diverged by round 1: its Embedding.h is 4.8e\+38 times as large as any other party's; then server",
    ),
    "a number of releases that is none": (
        at(Embedding, 2, lambda sent: [Spent(math.nan), sent]), RefusedError,
        "'party2' was cut off: it stated nan releases",
    ),
    "releases beyond any run": (
        at(Embedding, 2, lambda sent: [Spent(1.7e308), sent]), RefusedError,
        r"'party2' was cut off: it stated 1.7e\+308 releases",
    ),
    # rounds and numbers
    "the round before": (
        at(Embedding, 3, lambda sent: [replace(sent, round=2)]), PartyLost,
        "party2 was lost: no Embedding for round 3 within 20 s",
    ),
    "the next round": (
        at(Embedding, 2, lambda sent: [replace(sent, round=3)]), PartyLost,
        "party2 was lost: no Embedding for round 2 within 20 s",
    ),
    "a round far ahead": (
        at(Embedding, 2, lambda sent: [replace(sent, round=42)]), ContractError,
        "party2 sent Embedding.round: expected at most 34, got 42",
    ),
    "a row less": (
        values(2, lambda h: h[1:]), ContractError,
        r"party2 sent Embedding.h: expected rows = 256 in dimension 0, got shape \(255, 4\)",
    ),
    # messages in the place of others
    "an evaluation in training": (
        at(Embedding, 2, lambda _sent: [ones(2)]), PartyLost, "party2 was lost: no Embedding for round 2 within 20 s",
    ),
    "another block": (
        at(Evaluation, 1, lambda sent: [replace(sent, block=sent.block + 1)]), ContractError,
        "party2 sent Evaluation.block: expected validation 0, got validation 1",
    ),
    "test rows in the place of validation rows": (
        at(Evaluation, 1, lambda sent: [replace(sent, part="test")]), ContractError,
        "party2 sent Evaluation.block: expected validation 0, got test 0",
    ),
    "an evaluation of the round before": (
        at(Evaluation, 1, lambda sent: [replace(sent, round=3)]), ContractError,
        r"party2 sent Evaluation.h: expected rows = 144 in dimension 0, got shape \(256, 4\)",
    ),
    "a second Hello": (
        at(Embedding, 2, lambda sent: [Hello(LIAR, "test", "0"), sent]), RefusedError, "cut off: it sent Hello out of",
    ),
    "the failure of another": (
        at(Embedding, 2, lambda _sent: [Failure("party1", "it was party1")]), PartyFailed, "^party2 failed: it was pa",
    ),
    "more statements than rounds need": (
        at(Embedding, 2, lambda sent: [*[Statement(body=b"{}")] * 50, sent]), ContractError,
        "party2 sent Statement: expected at most 20 so far, of at most 49152 bytes, got 21 of them",
    ),
    "a flood of what nobody waits for": (
        at(Embedding, 2, lambda sent: [*[ones(2)] * 1000, sent]), PartyLost, "party2 was lost: no Embedding for round",
    ),
    "a flood of checkpoints that nobody asked for": (
        at(Embedding, 2, lambda sent: [*[Saved(1, "no room " * 100)] * 1000, sent]), ContractError,
        r"party2 sent a frame: expected at most \d\d notices by round 2, got \d\d, the last of them Saved",
    ),
    "a flood of releases": (
        at(Embedding, 2, lambda sent: [*[Spent(1)] * 1000, sent]), ContractError,
        r"party2 sent a frame: expected at most \d\d notices by round 2, got \d\d, the last of them Spent",
    ),
    "a flood of empty frames": (
        at(Embedding, 2, lambda sent: [*[lambda _now: b""] * 5000, sent]), ContractError,
        "party2 sent a frame: expected at most 4096 frames that are empty or of another session, got more",
    ),
    "a flood of another session": (
        at(Embedding, 2, lambda sent: [*[lambda _now: pack(Spent(1), 7, CODEC)] * 5000, sent]), ContractError,
        "party2 sent a frame: expected at most 4096 frames that are empty or of another session, got more",
    ),
    # frames
    "half a frame": (
        frame(lambda whole: [whole[:-100]]), ContractError, "party2 sent a frame: expected 4128 bytes more, got 4028",
    ),
    "a frame in two halves": (
        frame(lambda whole: [whole[:2000], whole[2000:]]), ContractError, r"party2 sent a frame: expected 4\d+ byt",
    ),
    "three bytes": (frame(lambda whole: [whole[:3]]), ContractError, "party2 sent a frame: expected a number, got the"),
    "a frame of no session": (
        frame(lambda whole: [whole], session=0), ContractError, r"party2 sent a frame: expected parcels of session \d",
    ),
    "a frame of another session": (frame(lambda whole: [whole], session=7), PartyLost, "party2 was lost: no Embedding"),
    # slow and silent ones
    "a writer that is too slow": (late(SLOW + 5), PartyLost, "party2 was lost: no Embedding for round 2 within 20 s"),
    "silent from the beginning": (
        lambda parcel: [parcel] if isinstance(parcel, Hello) else [], PartyLost, "party2 was lost: no Embedding",
    ),
    "a Hello that does not come": (lambda _parcel: [], PartyLost, "party2 was lost: did not join within 20 s"),
    "no word that its checkpoint is saved": (
        lambda parcel: [] if isinstance(parcel, Saved) else [parcel], PartyLost,
        "^party2 was lost: no checkpoint of round 4 within 20 s",
    ),
    "records of another run": (
        at(Hello, 1, lambda hello: [replace(hello, run="another", held=(4,))]), PartyLost,
        "party2 was lost: did not join within 20 s",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lie", "error", "said"), ENDS.values(), ids=ENDS)
def test_the_run_ends_and_the_liar_is_named_alone(tmp_path: Path, lie: Lie, error: type[Exception], said: str) -> None:
    scene = lied(tmp_path, lie)
    with pytest.raises(error, match=said):
        raise scene.error or AssertionError("the run went on")
    assert not any(name in str(scene.error) for name in ("party1", "party3", "party4") if "failed" not in said)
    assert scene.seconds <= 2 * SLOW + 5 and {**sound().losses, **scene.losses}.keys() == sound().losses.keys()


@pytest.mark.parametrize(("stated", "said"), [
    (1.0, "it stated 1 releases, and 2 have come from it"), (17.0, "it stated 17 releases, and the privacy budget al"),
])  # fmt: skip
def test_releases_that_disagree_with_what_came_or_with_the_budget_end_the_run(
    tmp_path: Path, stated: float, said: str
) -> None:
    budget = "federation.privacy={clip: 1, noise_multiplier: 30, epsilon: 0.8}"  # of 16 releases
    scene = lied(tmp_path, at(Embedding, 3, lambda sent: [Spent(stated), sent]), budget)
    with pytest.raises(RefusedError, match=said):
        raise scene.error or AssertionError("the run went on")


GOES_ON: dict[str, tuple[Lie, str]] = {
    "the same round twice": (at(Embedding, 2, lambda sent: [sent, replace(sent, h=sent.h * 9)]), "late"),
    "an empty frame": (at(Embedding, 2, lambda sent: [lambda _now: b"", sent]), ""),
    "a writer that is slow": (late(SLOW - 5), ""),
    "a checkpoint that is saved twice": (at(Saved, 2, lambda saved: [saved, saved]), ""),
    "checkpoints that nobody asked for": (at(Saved, 1, lambda saved: [Saved(2**32 - 1), saved, Saved(999)]), ""),
    "a checkpoint that it cannot save": (at(Saved, 1, lambda saved: [Saved(saved.round, "no")]), "checkpoint_failed"),
    "a statement that nobody can read": (at(Embedding, 2, lambda sent: [Statement(body=b"\xff"), sent]), ""),
    "checkpoints that it never had": (at(Hello, 1, lambda hello: [replace(hello, held=(5, 1000))]), ""),
    "no farewell": (at(Farewell, 1, lambda _farewell: []), ""),
    "a message after its farewell": (at(Farewell, 1, lambda farewell: [farewell, ones(4)]), ""),
    "releases, where none are counted": (at(Embedding, 2, lambda sent: [Spent(1e8), Spent(1), sent]), ""),
}


@pytest.mark.parametrize(("lie", "event"), GOES_ON.values(), ids=GOES_ON)
def test_the_run_goes_on_with_the_same_losses(tmp_path: Path, lie: Lie, event: str) -> None:
    scene = lied(tmp_path, lie)
    assert scene.error is None and scene.losses == sound().losses
    noticed = [e for e in scene.events if e["kind"] in ("refused", "leave", "late", "warning", "checkpoint_failed")]
    assert [(e["kind"], e["party"]) for e in noticed] == ([(event, LIAR)] if event else [])


@pytest.mark.parametrize("round", [1, 3], ids=["from the first round on", "later"])
def test_numbers_that_are_huge_and_finite_are_a_warning_by_name(tmp_path: Path, round: int) -> None:
    """They ruin the model as any poisoned embedding does: the server says so, and no check could refuse them."""
    scene = lied(tmp_path, values(round, entry(1e20)))
    assert scene.error is None and scene.losses != sound().losses
    (warning,) = scene.of_kind("warning")
    assert warning["party"] == LIAR and warning["round"] == round and "1.4e+20 times" in warning["reason"]


def test_well_formed_embeddings_of_another_round_are_not_noticed(tmp_path: Path) -> None:
    """As the threat model says of poisoned embeddings."""
    before: list[Tensor] = []

    def again(sent: Embedding) -> list[Embedding]:
        return [replace(sent, h=before[0])]

    def lie(parcel: Parcel) -> Iterable[Answer]:
        if isinstance(parcel, Embedding):
            before.append(parcel.h)
            return again(parcel)
        return (parcel,)

    scene = lied(tmp_path, lie)
    assert scene.error is None and scene.losses[1] == sound().losses[1] and scene.losses[2] != sound().losses[2]
    assert not scene.of_kind("warning")


def test_where_rounds_go_on_without_absent_parties_the_liar_is_cut_off_and_they_do(tmp_path: Path) -> None:
    sets = ("federation.absence=continue", "federation.quorum={need: 3, grace: 1}")
    scene = lied(tmp_path, frame(lambda whole: [whole[:-100]]), *sets)
    assert scene.error is None and sorted(scene.losses) == list(range(1, ROUNDS + 1))
    assert [(event["round"], event["party"]) for event in scene.of_kind("missing")] == [(t, LIAR) for t in (2, 3, 4)]
    (leave,) = scene.of_kind("leave")
    assert leave["party"] == LIAR and "sent a frame: expected 4128 bytes more" in leave["reason"]


def test_the_others_hear_who_it_was_and_nothing_that_it_wrote(tmp_path: Path) -> None:
    scene = lied(tmp_path, at(Embedding, 2, lambda sent: [Hello(LIAR, "test", "0"), sent]))
    assert scene.refusal() == "'party2': it sent Hello out of turn" and not scene.refusal("party1")
    (heard,) = scene.puppets["party1"].said(Failure)
    assert heard.reason == "'party2' was cut off: it sent Hello out of turn"
