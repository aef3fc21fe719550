"""Some thousand inputs of a fixed seed for every reader, all kept ones, and defects that the fuzzer has to find."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.common.wire.codec import WireError, nested, read_fields, tag, varint
from tests.fuzz.engine import CORPUS, Case, Failure, Target, attempt, fuzz, kept_cases, smaller
from tests.fuzz.mutations.protobuf import mutate_protobuf
from tests.fuzz.targets.all import TARGETS

SEED = 20261124
BY_NAME = {target.name: target for target in TARGETS}


def words(failures: list[Failure]) -> str:
    return "\n".join(f"{failure}\n  {failure.case}" for failure in failures)


@pytest.mark.parametrize("name", BY_NAME)
def test_mutated_inputs_are_read_or_refused(name: str) -> None:
    target = BY_NAME[name]
    valid, failures = fuzz(target, SEED, target.count)
    assert not failures, words(failures)
    assert valid  # some are still read


@pytest.mark.parametrize("name", BY_NAME)
def test_seeds_and_kept_inputs_are_read_or_refused(name: str) -> None:
    target = BY_NAME[name]
    assert target.seeds()
    failures = [failure for case in target.pool if (failure := attempt(target, case))]
    assert not failures, words(failures)


def test_every_kept_input_is_of_a_target_and_small() -> None:
    for path in CORPUS.rglob("*.bin"):
        assert path.parent.name in BY_NAME and path.stat().st_size < 1 << 16
        assert Case.of(path.read_bytes()).kept() == path.read_bytes()
    assert kept_cases("records")


def test_the_same_seed_makes_the_same_inputs() -> None:
    made: list[list[Case]] = [[], []]
    for seen in made:
        fuzz(BY_NAME["frames"], 5, 300, seen.append)
    assert made[0] == made[1]
    other: list[Case] = []
    fuzz(BY_NAME["frames"], 6, 300, other.append)
    assert other != made[0]


# The fuzzer itself: a reader that is wrong in one place.


def found(read: Callable[[str, bytes], object], data: bytes, count: int = 3000) -> Failure:
    target = Target("planted", lambda: read, lambda: [Case("", data)], (WireError,), mutate_protobuf)
    _, failures = fuzz(target, 1, count)
    assert failures, "nothing was found"
    return smaller(target, failures[0])


FRAME = b"".join([tag(1, 0), varint(7), *nested(2, [*nested(3, [b"abcdefgh"])])])


def test_a_planted_overflow_is_found_and_made_small() -> None:
    def read(_variant: str, data: bytes) -> object:
        return [value.to_bytes(4) for _, _, value in read_fields(memoryview(data)) if isinstance(value, int)]

    failure = found(read, FRAME * 8)
    assert isinstance(failure.error, OverflowError) and len(failure.case.data) < len(FRAME) * 2


def test_planted_recursion_is_found() -> None:
    def read(_variant: str, data: bytes) -> object:
        def deep(view: memoryview, depth: int) -> None:
            if depth > 20:
                raise RecursionError
            for _, _, value in read_fields(view):
                if isinstance(value, memoryview):
                    deep(value, depth + 1)

        deep(memoryview(data), 0)
        return None

    assert isinstance(found(read, FRAME).error, RecursionError)


def test_a_planted_allocation_is_found() -> None:
    def read(_variant: str, data: bytes) -> object:
        sizes = [value for _, _, value in read_fields(memoryview(data)) if isinstance(value, int)]
        return [len(bytes(size)) for size in sizes if size < 1 << 33]

    assert isinstance(found(read, FRAME).error, MemoryError)


def test_a_planted_write_is_found(tmp_path: Path) -> None:
    def read(_variant: str, data: bytes) -> object:
        if len(data) > 20:
            (tmp_path / "written").write_bytes(data)
        return None

    assert "it opens" in str(found(read, FRAME)) and not list(tmp_path.iterdir())


def test_a_planted_endless_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.engine.SECONDS", 0.05)

    def read(_variant: str, data: bytes) -> object:
        while data[:1] == b"\0":
            pass
        return None

    target = Target("planted", lambda: read, list, (WireError,))
    failure = attempt(target, Case("", b"\0"))
    assert failure is not None and "processor time" in str(failure)
    assert attempt(target, Case("", b"\1")) is None


def test_mutations_keep_the_lengths_around_a_field() -> None:
    """Else nearly every change of an inner field would be refused by the outermost reader, and none further in."""
    rng, deep = random.Random(1), 0
    for _ in range(2000):
        try:
            fields = read_fields(memoryview(mutate_protobuf(rng, FRAME, FRAME)))
            inner = [value for number, _, value in fields if number == 2 and isinstance(value, memoryview)]
            deep += any(bytes(value) != FRAME[4:] for value in inner)
        except WireError:
            continue
    assert deep > 600
