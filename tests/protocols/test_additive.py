"""Additive models against boosting written from the formulas, encrypted against clear, and members that lie."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from colonnade.client.protocols.additive import local, participate
from colonnade.client.training.bins import Binning, binned
from colonnade.client.training.context import ClientContext
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import Cohort, Link
from colonnade.common.encryption.messages import (
    BinCounts,
    HintPart,
    MaskedSums,
    Masks,
    Nonces,
    OpenedSums,
    ProbeSeed,
    ProbeSums,
    Vectors,
)
from colonnade.common.encryption.parameters import SumSize
from colonnade.common.errors import ConfigError, ContractError, InputError
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.additive import Change, Counted
from colonnade.server.protocols.additive import serve
from colonnade.server.training.trees.gradients import TreeObjective
from colonnade.simulation.federation import Outcome, Simulation
from tests.protocols.test_secureboost import Lying
from tests.support.altered_lines import change_each
from tests.support.federation import late

ROUNDS, RATE, L2, LEAST, LEAVES = 4, 0.05, 1.0, 2.0, 3
CLEAR, SEEN = "federation.protocol.gradients=clear", "federation.protocol.aggregate=clear"
PRECISE = (CLEAR, "federation.protocol.precision=40")


def config(*sets: str, name: str = "breast_cancer", **federation: Any) -> Config:
    outputs = {"task": "regression"} if name == "diabetes" else {"classes": {"breast_cancer": 2, "wine": 3}[name]}
    protocol = {"name": "additive", "rate": RATE, "l2": L2, "min_hessian": LEAST, "least": 5, "bins": 12}
    tree = {
        "federation": {
            "id": "shapes", "parties": 3, "rounds": ROUNDS, "batch": 64, "seed": 0, "stop": "none", **outputs,
            "protocol": protocol, **federation,
        },
        "server": {"labels": {"source": "sklearn", "name": name}},
        "every_party": {"data": {"source": "sklearn", "name": name, "split": "columns"}},
    }  # fmt: skip
    return parse(tree, sets)


def run(*sets: str, name: str = "breast_cancer", **more: Any) -> Outcome:
    return Simulation(config(*sets, name=name), record=True, **more).run()


encrypted = cache(lambda: run("parties.party2.chaos.delay=2s", save=True))


def scores(outcome: Outcome) -> NDArray[np.float64]:
    """What the shapes add up to at all rows, float64 (rows, scores)."""
    found: Tensor = outcome.server.state["scores"]
    return found.numpy()


def same(one: Outcome, other: Outcome) -> bool:
    shapes = zip(one.clients.values(), other.clients.values(), strict=True)
    return np.array_equal(scores(one), scores(other)) and all(
        torch.equal(a.state["shapes"], b.state["shapes"]) for a, b in shapes
    )


def segmented(g: NDArray[np.float64], h: NDArray[np.float64]) -> NDArray[np.float64]:
    """Newton's step of each run of bins; runs are found greedily, one cut at a time, by trying all."""
    cuts = [0, len(g)]

    def score(first: int, last: int) -> float:
        return g[first:last].sum() ** 2 / (h[first:last].sum() + L2)

    while len(cuts) <= LEAVES:
        tries = [
            (score(a, c) + score(c, b) - score(a, b), -c)
            for a, b in itertools.pairwise(cuts)
            for c in range(a + 1, b)
            if min(h[a:c].sum(), h[c:b].sum()) >= LEAST
        ]
        if not tries or max(tries)[0] <= 1e-9:
            break
        cuts = sorted([*cuts, -max(tries)[1]])
    runs = itertools.pairwise(cuts)
    return np.concatenate([np.full(b - a, -g[a:b].sum() / (h[a:b].sum() + L2)) for a, b in runs])


def stepped(
    column: Binning, shape: NDArray[np.float64], g: NDArray[np.float64], h: NDArray[np.float64], falling: bool
) -> NDArray[np.float64]:
    """A column's shape after a step."""
    step = -g / (h + L2)
    if column.cuts is not None:
        step[: column.values] = segmented(g[: column.values], h[: column.values])
    new = shape + RATE * step
    if falling:
        places = np.arange(column.values)
        fit = IsotonicRegression(increasing=False).fit(places, new[: column.values], h[: column.values] + 1e-12)
        new[: column.values] = fit.predict(places)
    return np.rint(new * 2**16) / 2**16


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes"])
def test_shapes_are_those_of_boosting_over_the_joined_bins(tmp_path: Path, name: str) -> None:
    """Two classes, with one column that has to fall, and weights of rows and classes; several; and a number."""
    two, falls, sets = name == "breast_cancer", "mean texture", list(PRECISE)
    y = load_breast_cancer().target
    w = np.random.default_rng(0).choice([0, 0.5, 1, 4], len(y))
    if two:
        np.savetxt(tmp_path / "y.csv", np.c_[y, w], fmt="%g", delimiter=",", header="y,w", comments="")
        sets += [
            f"parties.party1.monotone={{{falls}: falling}}",
            f"server.labels={{source: csv, path: {tmp_path}/y.csv, label: y, weight: w}}",
            "server.class_weights=[1, 8]",
        ]
    outcome = run(*sets, name=name)
    ctx, train = outcome.server, outcome.server.schedule.partition.train.numpy()
    tables = [binned(client, most=12, least=5) for client in outcome.clients.values()]
    columns = [(column, table.codes[:, place]) for table in tables for place, column in enumerate(table.columns)]
    objective, start = TreeObjective(ctx), ctx.state["start"].numpy()
    width = len(start)
    shapes = [np.zeros((column.count, width)) for column, _ in columns]
    for _ in range(ROUNDS):
        f = start + sum(shape[codes] for shape, (_, codes) in zip(shapes, columns, strict=True))
        found = objective.gradients(f[train], 40)
        g, h = found.first * found.step, found.second * found.second_step
        if two:
            weights, p = (w * np.where(y, 8, 1))[train, None], 1 / (1 + np.exp(-f[train]))
            g, h = weights * (p - y[train, None]), weights * p * (1 - p)
        for shape, (column, codes) in zip(shapes, columns, strict=True):
            for score in range(width):
                sums = [np.bincount(codes[train], each[:, score], column.count) for each in (g, h)]
                shape[:, score] = stepped(column, shape[:, score], *sums, two and column.name == falls)
    mine = np.concatenate([client.state["shapes"].numpy() for client in outcome.clients.values()])
    np.testing.assert_allclose(mine, np.concatenate(shapes), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(scores(outcome), sum(s[codes] for s, (_, codes) in zip(shapes, columns, strict=True)))


def test_a_shape_keeps_to_its_direction() -> None:
    def texture(*sets: str) -> NDArray[np.float64]:
        """The shape of the second column."""
        client = run(*PRECISE, *sets).clients["party1"]
        first, count, *_ = binned(client, most=12, least=5).counts
        shapes: Tensor = client.state["shapes"]
        return shapes[first : first + count, 0].numpy()

    assert (np.diff(texture()) < 0).any()
    assert (np.diff(texture("parties.party1.monotone={mean texture: rising}")) >= 0).all()


def test_pairs_of_a_party_take_a_step_where_they_gain_most() -> None:
    """At most two a party in the first round, none with a column that has a direction; every cell has rows enough."""
    sets = ("federation.protocol.pairs=2", "federation.rounds=1", "parties.party1.monotone={mean radius: falling}")
    outcome = run(*sets, SEEN, CLEAR)
    for name, client in outcome.clients.items():
        part = local(client, client.federation.protocol)
        counts, single = part.bins.counts, len(part.bins.table.columns)
        pairs = np.split(part.values[:, 0], np.cumsum(counts)[:-1])[single:]
        moved = [pair for pair, values in zip(part.bins.pairs, pairs, strict=True) if values.any()]
        assert len(pairs) == single * (single - 1) // 2 and len(moved) == 2
        assert name != "party1" or all(0 not in pair for pair in moved)
        train = part.bins.codes[client.schedule.partition.train.numpy()]
        rows = [np.bincount(train[:, column], minlength=count).min() for column, count in enumerate(counts)]
        assert min(rows) >= 5


def test_encrypted_and_blinded_shapes_of_a_late_party_are_the_clear_ones() -> None:
    bits = SumSize(len(encrypted().server.schedule.partition.train)).precision
    assert same(encrypted(), run(CLEAR, f"federation.protocol.precision={bits}"))
    assert same(encrypted(), run(CLEAR, SEEN, f"federation.protocol.precision={bits}"))
    assert encrypted().server.metrics["test_auc"] > 0.98


def test_a_resumed_run_has_the_unbroken_one_s_shapes() -> None:
    assert same(run(start=(2, encrypted().saved[2])), encrypted())


def test_a_quorum_goes_on_and_a_party_that_was_left_out_has_only_the_steps_that_count() -> None:
    """Party 2 is late with its change in round 2 alone: its step there does not count, and it takes others later."""

    delay = late("party2", Change, seconds=3.0, rounds=(2,))
    outcome = run(CLEAR, SEEN, "federation.quorum={need: 2, grace: 1}", "federation.rounds=5", delay=delay)
    assert next(event["round"] for event in outcome.of_kind("missing") if event["party"] == "party2") == 2
    cfg = outcome.server.federation.protocol
    rows = torch.arange(len(outcome.server.labels))
    parts = [local(client, cfg).of_rows(client.features, rows) for client in outcome.clients.values()]
    assert np.array_equal(torch.stack(parts).double().sum(0).numpy(), scores(outcome))
    assert not same(outcome, run(CLEAR, SEEN, "federation.rounds=5"))


def test_what_a_party_is_sent_depends_on_labels_in_ciphertexts_and_its_own_sums_alone() -> None:
    messages = [message for _, to, message in encrypted().messages if to == "party1"]
    own = {type(message).__name__ for message in messages if type(message).__module__.endswith("aggregation.messages")}
    assert own == {"KeyRing", "KeyProofs", "Members"}
    others = {type(message) for message in messages if type(message).__name__ not in own}
    assert others == {Nonces, Masks, Vectors, ProbeSeed, Counted, OpenedSums}
    words = torch.cat([m.c.flatten() for m in messages if isinstance(m, Vectors)]).numpy().view(np.uint64)
    top = np.bincount((words >> np.uint64(60)).astype(int), minlength=16) / len(words)
    assert np.abs(top - 1 / 16).max() < 0.01  # those of the probe's zeros, too


def test_what_the_server_is_sent_of_the_bins_is_uniform() -> None:
    sent = [m.y.flatten() for sender, _, m in encrypted().messages if isinstance(m, MaskedSums)]
    top = np.bincount((torch.cat(sent).numpy().view(np.uint64) >> np.uint64(60)).astype(int), minlength=16)
    assert top.min() > 0.7 * top.mean()


def test_steps_get_shorter_where_the_loss_would_rise() -> None:
    """Thirty columns, much alike, each of which takes the whole step."""
    sets = ("federation.protocol.rate=1", "federation.rounds=12", CLEAR, SEEN)
    outcome = run(*sets)
    losses = [event["loss"] for event in outcome.of_kind("round")]
    assert outcome.server.state["rate"]["now"] < 1
    assert (np.diff(losses) <= 1e-6).all()


def altered(kind: type[Message], **fields: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What replaces a message of a kind: one with other fields."""

    def change(item: Any) -> Any:
        if not isinstance(item, kind):
            return item
        return replace(item, **{name: make(getattr(item, name)) for name, make in fields.items()})

    return change


def other_hint(ctx: ClientContext, message: HintPart) -> Message:
    h = message.h.detach().clone()
    h[0, 5] += 1 << 60
    return replace(message, h=ctx.admit_masked(MaskedTensor(h, "bins, encrypted")))


def other_probe(ctx: ClientContext, message: ProbeSums) -> Message:
    return replace(message, y=ctx.release(message.y.detach() + 1))


def fewer_bins(ctx: ClientContext, message: MaskedSums) -> Message:
    return replace(message, y=ctx.admit_masked(MaskedTensor(message.y.detach()[1:].clone(), "masked")))


def one_bin(ctx: ClientContext, message: BinCounts) -> Message:
    return replace(message, counts=ctx.release(message.counts.detach() * 0 + 1))


@pytest.mark.parametrize(
    ("kind", "lie", "said"),
    [
        (HintPart, other_hint, r"party2.*ProbeSums.*sums of zeros under its hint"),
        (ProbeSums, other_probe, r"party2.*ProbeSums.*the sums whose hash it sent before"),
        (MaskedSums, fewer_bins, r"party2.*MaskedSums.*bins"),
        (BinCounts, one_bin, r"party2.*BinCounts.*2 to 65536 bins"),
    ],
)
def test_a_party_that_departs_from_the_protocol_is_named(kind: type[Message], lie: Any, said: str) -> None:
    async def side(ctx: ClientContext, link: Link, cfg: Any) -> None:
        change = lambda message: lie(ctx, message) if isinstance(message, kind) else None  # noqa: E731
        await participate(ctx, Lying(link, change), cfg)  # type: ignore[arg-type]

    with pytest.raises(ContractError, match=said):
        run(instead={"party2": side})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (altered(ProbeSeed, seed=lambda seed: seed + 1), r"ProbeSeed\.seed.*that of the vectors before"),
        (altered(OpenedSums, y=lambda y: y + (1 << 32)), r"OpenedSums\.y.*sums under our mask"),
        (altered(OpenedSums, units=lambda units: -units), r"OpenedSums\.units.*above 0"),
        (altered(OpenedSums, rate=lambda _rate: 7.0), r"OpenedSums\.rate.*at most 1"),
        (altered(Counted, rounds=lambda rounds: rounds + 3), r"Counted\.rounds.*for us 0"),
        (altered(Masks, level=lambda level: 1 - level), r"Masks\.level"),
    ],
)
def test_a_server_that_departs_from_the_protocol_is_found(change: Any, said: str) -> None:
    async def side(ctx: Any, clients: Cohort, cfg: Any) -> None:
        change_each(clients["party2"], change)
        await serve(ctx, clients, cfg)

    with pytest.raises(ContractError, match=said):
        run(SEEN, instead={"server": side})


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("federation.compress={down: 8}",), "compress with the protocol additive"),
        (("federation.privacy={clip: 1, noise_multiplier: 1}",), "additive"),
        (("federation.participation=0.5",), "participation"),
        (("federation.classes=17",), "at most 16"),
        (("federation.protocol.leaves=1",), "leaves"),
        (("federation.protocol.precision=40",), "at most [0-9]+ bits"),
        (("federation.blinding.bound=1e6",), "bits: 64"),
        (("parties.party1.monotone={weight: rising}",), "column 'weight' is not in the table"),
        (("parties.party1.monotone={mean radius: up}",), "rising"),
        (("federation.protocol=split", "parties.party1.monotone={mean radius: rising}"), "no direction of a column"),
    ],
)
def test_what_does_not_go_together_is_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises((ConfigError, InputError)) as refused:
        run(*sets)
    assert re.search(said, f"{refused.value} {refused.value.hint}")


def test_a_direction_of_several_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="no one score rises"):
        config("parties.party1.monotone={alcohol: rising}", name="wine")
