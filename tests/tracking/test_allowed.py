"""No private value reaches a tracker: canaries in tables, keys, names, paths, URLs and errors; fields of all kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.members import ServerConfig
from colonnade.common.parsing.file import parse
from colonnade.common.tracking.allowed import (
    AGREED,
    COUNTED,
    OWN_NUMBERS,
    OWN_WORDS,
    agreed_parameters,
    own_parameters,
    score_names,
    summary_record,
)
from colonnade.common.tracking.listener import PARTY_METRICS, Tracked, Tracking
from colonnade.common.tracking.tracker import TrackedRun
from tests.support.federation import tree
from tests.support.tracking import CANARY, Recorder, RecorderConfig, canary_tables, run_tracked, with_trackers

KINDS = (
    "aligned", "pace", "missing", "round", "skipped", "warning", "evaluation", "stopped", "abandoned", "preparing",
    "partial_sum", "checkpoint_failed", "checkpoint", "revocations", "resume", "join", "failed", "leave", "rejoin",
    "late", "begin", "end", "rollback", "listening", "capture", "server_away", "refused", "observed", "unheard_of",
    "privacy", "back_off", "diverged", "finding", "decision", "batch", "reloaded",
)  # fmt: skip
FIELDS = (
    "party", "reason", "hint", "address", "addresses", "rounds", "epoch", "loss", "seconds", "bytes_up", "bytes_down",
    "slowest", "part", "parties", "device", "kind_of", "phases", "val_accuracy", "test_auc", f"val_{CANARY}", CANARY,
    f"test_accuracy_{CANARY}", "train_loss", "metrics", "health", "waiting_for", "status", "said",
)  # fmt: skip


def seen(recorder: Recorder) -> str:
    """All that a tracker received, without the folders that it may write to."""
    got = [recorder.run.federation, recorder.run.member, recorder.run.name, recorder.calls, recorder.files]
    return repr(got).lower()


def tracking(folder: Path, config: RecorderConfig) -> Tracking:
    run = TrackedRun("credit", "server", folder, folder)
    return Tracking((config,), Tracked("server.trackers", run, {}, ("bank", "clinic")))


def replaced(value: Any) -> Any:
    """The same with every word replaced, and with one more key in every section."""
    if isinstance(value, Mapping):
        return {**{key: replaced(below) for key, below in value.items()}, CANARY: 1, f"{CANARY}s": CANARY}
    if isinstance(value, list | tuple):
        return [replaced(below) for below in value]
    return value if isinstance(value, bool | int | float) else CANARY


@pytest.mark.parametrize("value", [CANARY, [CANARY], {CANARY: 1.0}, {"party": CANARY}, True, float("nan"), None])
def test_no_event_passes_what_is_not_a_listed_number(value: Any, tmp_path: Path) -> None:
    config = RecorderConfig()
    listener = tracking(tmp_path, config)
    for kind in KINDS:
        listener({**dict.fromkeys(FIELDS, value), "kind": kind, "time": 1.0, "round": 3})
    listener.party(3, dict.fromkeys((*FIELDS, *PARTY_METRICS), value))
    listener.finish("failed", 3, {CANARY: value, "error": value, "metrics": {CANARY: value}})
    assert CANARY not in seen(config.last)
    counts = {"answers_missing": 1, "rounds_skipped": 1, "answers_late": 1, "rollbacks": 1, "back_offs": 1}
    numbers = {name: each for _, values in config.last.of("metrics") for name, each in values.items()}
    assert numbers.items() <= counts.items()


def test_numbers_under_unlisted_names_stay(tmp_path: Path) -> None:
    config = RecorderConfig()
    listener = tracking(tmp_path, config)
    for kind in KINDS:
        listener({**dict.fromkeys(FIELDS, 4711.0), "kind": kind, "time": 1.0, "round": 3})
    listener.finish("completed", 3, {"metrics": {CANARY: 4711.0, "test_auc": 0.5}, "details": {"test": 4711.0}})
    names = {name for _, values in config.last.of("metrics") for name in values}
    listed = {"train_loss", "epoch", "round_seconds", "bytes_up", "bytes_down", *COUNTED.values()}
    assert names <= listed | {"val_accuracy", "test_auc"} and {"test_auc", "train_loss"} <= names
    assert json.loads(config.last.files["summary.json"]) == {"status": "completed", "metrics": {"test_auc": 0.5}}


def test_every_kind_of_event_is_tried() -> None:
    """A new kind of event belongs to the list above."""
    root, found = Path(__file__).parents[2], set()
    for folder in ("server", "client", "common", "colonnade"):
        for path in (root / folder).rglob("*.py"):
            pieces = path.read_text().replace("(\n", "(").split("telemetry.event(")[1:]
            found |= {piece.strip().split('"')[1] for piece in pieces if piece.strip().startswith('"')}
    assert "round" in found and found <= set(KINDS)


LEAVES = st.just(CANARY) | st.floats() | st.booleans()
KEYS = st.sampled_from(
    [CANARY, "epsilon", "privacy", "bytes", "party1", "up", "void", "best", "metrics", "test_auc", "round"]
)


@given(st.recursive(LEAVES, lambda below: st.dictionaries(KEYS, below)))
def test_no_word_of_a_summary_passes(content: Any) -> None:
    summary = dict.fromkeys(("bytes", "privacy", "metrics", "error", "dataset", "targets", "best", "theorem"), content)
    record = summary_record(summary, "failed", ("party1",), score_names(("party1",)))
    assert CANARY not in json.dumps(record)
    assert not {"error", "dataset", "targets", "details"} & set(record)


def test_no_word_of_the_servers_own_section_passes() -> None:
    made = tree({"name": "split", "embedding": 8})
    made["server"] |= {"class_weights": [0.125] * 10, "head": {"name": "mlp", "hidden": 32}, "device": "cuda:3"}
    section = parse(made).server.model_dump(mode="json")
    own = own_parameters(section)
    assert own["server.head.hidden"] == 32 and own["server.optimiser.name"] == "sgd"
    assert "0.125" not in repr(own) and "cuda" not in repr(own)
    assert CANARY not in repr(own_parameters(replaced(section)))
    foreign = {"head": {"file": f"{CANARY}.py:Head", "name": "linear", "hidden": CANARY, "layers": 3}}
    assert own_parameters(foreign) == {}


def test_the_lists_name_no_source_identity_address_or_key() -> None:
    fields = set(ServerConfig.model_fields)
    listed = {key.split(".")[0] for key in (*OWN_NUMBERS, *OWN_WORDS)}
    assert listed <= fields
    assert not listed & {"labels", "identity", "revoked", "listen", "metrics", "health", "trackers", "active"}
    assert not {"classes", "keys", "parties", "server"} & set(AGREED)


def test_class_names_of_the_agreed_section_stay() -> None:
    made = tree({"name": "split", "embedding": 8})
    made["federation"]["classes"] = [f"{CANARY}{n}" for n in range(10)]
    federation = parse(made).federation
    found = agreed_parameters(federation.model_dump(mode="json"), federation.names, federation.outputs)
    assert CANARY not in repr(found) and found["outputs"] == 10
    assert found["protocol.embedding"] == 8 and found["parties"] == "party1, party2, party3, party4"


@pytest.mark.parametrize("align", ["psi", "none"])
def test_a_run_over_canaries(align: str, tmp_path: Path) -> None:
    made = canary_tables(tmp_path, align=align)
    made["server"] |= {"identity": f"/{CANARY}/keys", "revoked": f"/{CANARY}/revoked.json"}
    made["parties"]["party1"]["identity"] = f"/{CANARY}/party1"
    config = RecorderConfig()
    outcome, _ = run_tracked(with_trackers(parse(made), config), tmp_path / "run", tmp_path)
    assert outcome.server.details  # a confusion matrix, of labels
    assert CANARY not in seen(config.last)
    said = json.loads(config.last.files["summary.json"])
    assert said["metrics"]["test_accuracy"] == outcome.server.metrics["test_accuracy"]
    assert (tmp_path / "run" / "summary.json").stat().st_size > len(config.last.files["summary.json"])
