"""Captures against an independent recorder on the same links."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.client.transcript.capture import Capture, Captured, evaluates, has_capture, read_capture
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config, PartyConfig
from colonnade.common.config.run_options import CaptureConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Item, Open
from colonnade.common.errors import ConfigError, EnvironmentFault, InputError
from colonnade.common.messaging.message import Message, schema
from colonnade.common.protocols.split import Embedding, Evaluation, Gradient
from colonnade.simulation.federation import Outcome, RunFiles
from tests.support.federation import config, federate

TRAINING, EVALUATIONS = "capture.bin", "capture-evaluations.bin"

# Turns, sealed shares, blinded words and packed tensors; 1797 rows make 6 rounds an epoch of 256 rows.
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "split": {},
    "vafl": {"arrivals": True},
    "czofo": {"directions": 3},
    "vimadmm": {"tau": 2},
    "vfedmh": {},
    "fedvs": {"embedding": 8},
    "c_vfl": {"local_steps": 2},
}
PACKED = {"split": ("federation.compress={up: 4, down: {top: 0.2}}",)}
CAPTURE = "every_party.capture={evaluations: all}"


def run(tmp_path: Path, name: str, *sets: str) -> tuple[Config, Outcome]:
    cfg = config({"name": name, "embedding": 6, **PROTOCOLS[name]}, *PACKED.get(name, ()), *sets)
    return cfg, federate(cfg, files=RunFiles(tmp_path, cfg, Path()))


def field_values(message: Message) -> list[Any]:
    """All of a message, as values that compare."""
    fields = [getattr(message, name) for name in schema(type(message))]
    return [type(message).__name__, *(f.tolist() if isinstance(f, torch.Tensor) else f for f in fields)]


def seen(outcome: Outcome, party: str, *, evaluation: bool) -> list[list[Any]]:
    """A party's messages in the test's own recorder, in order."""
    return [
        ["out" if sender == party else "in", *field_values(message)]
        for sender, to, message in outcome.messages
        if party in {sender, to} and evaluates(message) == evaluation
    ]


def read(cfg: Config, path: Path) -> list[list[Any]]:
    return [[one.way, *field_values(one.message)] for one in read_capture(path, cfg.federation)]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_capture_equals_the_traffic_of_the_link(tmp_path: Path, name: str) -> None:
    cfg, outcome = run(tmp_path, name, CAPTURE, "federation.epochs=1")
    for party in cfg.federation.names:
        for file, evaluation in ((TRAINING, False), (EVALUATIONS, True)):
            # A message in transit arrives after those sent meanwhile: each direction has its own order.
            for way in ("out", "in"):
                found = [entry for entry in read(cfg, tmp_path / "parties" / party / file) if entry[0] == way]
                sent = [entry for entry in seen(outcome, party, evaluation=evaluation) if entry[0] == way]
                assert found == sent[: len(found)] and len(found) >= len(sent) - 1  # the last may not have come
        kept = (tmp_path / "parties" / party).glob("capture*.bin")
        assert outcome.captures[party].size == sum(path.stat().st_size for path in kept)


def test_a_response_follows_its_request(tmp_path: Path) -> None:
    cfg, _ = run(tmp_path, "vafl", CAPTURE)
    ways = [one.way for one in read_capture(tmp_path / "parties" / "party2" / TRAINING, cfg.federation)]
    assert ways == ["out", "in"] * (len(ways) // 2) and len(ways) > 20


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    _, outcome = run(tmp_path, "split")
    assert not list(tmp_path.rglob("capture*"))
    assert outcome.captures == {} and not has_capture(tmp_path / "parties" / "party1")
    own = config({"name": "split"}, "parties.party2.capture={}")
    assert {name for name, party in own.parties.items() if party.capture} == {"party2"}


@pytest.mark.parametrize(("every", "kept"), [(1, {1, 2, 3, 4, 5}), (2, {2, 4, 5}), (9, {5})])
def test_every_nth_epoch_and_the_last_are_kept(tmp_path: Path, every: int, kept: set[int]) -> None:
    cfg, outcome = run(tmp_path, "split", f"every_party.capture.every={every}", "federation.epochs=5")
    captured = read_capture(tmp_path / "parties" / "party1" / TRAINING, cfg.federation)
    rounds = [one.round for one in captured if one.way == "out"]
    per_epoch = outcome.server.round // 5
    assert rounds == [t for t in range(1, outcome.server.round + 1) if math.ceil(t / per_epoch) in kept]


@pytest.mark.parametrize("kept", ["last", "none"])
def test_of_evaluations_the_last_is_kept_or_none(tmp_path: Path, kept: str) -> None:
    cfg, outcome = run(tmp_path, "split", f"every_party.capture.evaluations={kept}", "federation.epochs=3")
    found = read(cfg, tmp_path / "parties" / "party1" / EVALUATIONS)
    all_of_them = seen(outcome, "party1", evaluation=True)
    assert len({entry[2] for entry in all_of_them}) == 3
    assert found == [entry for entry in all_of_them if kept == "last" and entry[2] == outcome.server.round]


def test_capturing_changes_nothing_that_is_learned(tmp_path: Path) -> None:
    (_, with_it), (_, without) = run(tmp_path / "with", "split", CAPTURE), run(tmp_path / "without", "split")
    assert with_it.server.metrics == without.server.metrics and without.captures == {}


# By hand: a capture of messages that never crossed anything.


@pytest.fixture
def federation() -> FederationConfig:
    return config({"name": "split", "embedding": 3}, "federation.epochs=4").federation


def capture(folder: Path, federation: FederationConfig, session: int, **wanted: Any) -> Capture:
    return Capture(folder, CaptureConfig(**wanted), federation, Schedule(federation, 1797, 0), session)


def cross(made: Capture, *items: Item) -> list[Item]:
    """Direction: out for a party's messages, in for the rest; only delivered ones."""
    passed: list[Item] = []
    for item in items:
        (made.outward if isinstance(item, Embedding | Evaluation) else made.inward)(passed.append)(item)
    made.close()
    return passed


def embedding(round: int, value: float) -> Embedding:
    return Embedding(round, torch.full((2, 3), float(value)))


def values(path: Path, federation: FederationConfig) -> list[tuple[str, int, float]]:
    return [(one.way, one.round, _value(one)) for one in read_capture(path, federation)]


def _value(one: Captured) -> float:
    tensor = one.message.dh if isinstance(one.message, Gradient) else one.message.h  # type: ignore[attr-defined]
    return float(tensor[0, 0])


def test_after_a_rollback_the_latest_session_counts(tmp_path: Path, federation: FederationConfig) -> None:
    gradient = Gradient(2, torch.full((2, 3), -2.0))
    cross(capture(tmp_path, federation, 77), embedding(1, 1), embedding(2, 2), gradient, embedding(3, 3))
    cross(capture(tmp_path, federation, 5), embedding(2, 20), embedding(4, 40))  # numbers of sessions have no order
    assert values(tmp_path / TRAINING, federation) == [
        ("out", 1, 1), ("in", 2, -2), ("out", 3, 3), ("out", 2, 20), ("out", 4, 40)
    ]  # fmt: skip


def test_evaluations_of_a_later_session_replace_those_of_a_later_round(
    tmp_path: Path, federation: FederationConfig
) -> None:
    def look(round: int, block: int) -> Evaluation:
        return Evaluation(round, "test", block, torch.full((2, 3), float(block)))

    cross(capture(tmp_path, federation, 1), look(12, 0), look(12, 1), look(6, 9))  # late: of an evaluation before
    assert values(tmp_path / EVALUATIONS, federation) == [("out", 12, 0), ("out", 12, 1)]
    cross(capture(tmp_path, federation, 2), look(6, 2))
    assert values(tmp_path / EVALUATIONS, federation) == [("out", 6, 2)]


@given(st.data())
def test_a_record_that_was_cut_short_is_left_out_and_taken_off(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, federation = tmp_path_factory.mktemp("cut"), config({"name": "split", "embedding": 3}).federation
    cross(capture(folder, federation, 1), *(embedding(round, round) for round in (1, 2, 3)))
    path = folder / TRAINING
    whole, each = path.read_bytes(), path.stat().st_size // 3
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    left = [("out", round, float(round)) for round in (1, 2, 3)][: cut // each]
    assert values(path, federation) == left
    cross(capture(folder, federation, 2), embedding(4, 4))
    assert values(path, federation) == [*left, ("out", 4, 4)]


def test_rounds_pass_and_are_not_kept(tmp_path: Path, federation: FederationConfig) -> None:
    assert cross(capture(tmp_path, federation, 1), Open(1)) == [Open(1)]
    assert not has_capture(tmp_path)


def test_messages_that_cannot_be_captured_are_not_sent(tmp_path: Path, federation: FederationConfig) -> None:
    passed: list[Item] = []
    (tmp_path / TRAINING).mkdir()
    with pytest.raises(EnvironmentFault, match=r"capture.bin cannot be written: Is a directory"):
        capture(tmp_path, federation, 1).outward(passed.append)(embedding(1, 1))
    assert passed == []


@pytest.mark.parametrize(
    ("other", "reason"),
    [({"name": "vimadmm"}, "no message of a vimadmm run: Embedding.h|Gradient"), ({"name": "local"}, "no message")],
)
def test_another_federations_capture_is_refused(
    tmp_path: Path, federation: FederationConfig, other: dict[str, Any], reason: str
) -> None:
    cross(capture(tmp_path, federation, 1), Gradient(1, torch.zeros(2, 3)))
    with pytest.raises(InputError, match=f"record 1 is {reason}"):
        list(read_capture(tmp_path / TRAINING, config(other).federation))


def test_messages_larger_than_agreed_are_refused(tmp_path: Path, federation: FederationConfig) -> None:
    cross(capture(tmp_path, federation, 1), embedding(1, 1))
    smaller = config({"name": "split", "embedding": 2}).federation
    with pytest.raises(InputError, match=r"width <= 2 in dimension 1"):
        list(read_capture(tmp_path / TRAINING, smaller))


def test_invalid_captures_are_refused(tmp_path: Path, federation: FederationConfig) -> None:
    (tmp_path / TRAINING).write_bytes(b"\x07" * 40)
    with pytest.raises(InputError, match="is no capture: a record goes way 7"):
        list(read_capture(tmp_path / TRAINING, federation))


def test_captures_are_as_private_as_the_partys_folder(tmp_path: Path, federation: FederationConfig) -> None:
    cross(capture(tmp_path, federation, 1), embedding(1, 1))
    assert (tmp_path / TRAINING).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("wrong", [{"every": 0}, {"evaluations": "some"}, {"often": 1}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"parties.party1.capture"):
        config({"name": "split"}, f"parties.party1.capture={wrong}")


def test_it_is_not_part_of_the_agreed_section() -> None:
    plain, kept = config({"name": "split"}), config({"name": "split"}, CAPTURE)
    assert plain.federation.hashes() == kept.federation.hashes()
    assert PartyConfig.model_fields["capture"].default is None and SERVER not in kept.parties
