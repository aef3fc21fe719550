"""SecureBoost against an independent boosting loop, its two kinds of sums against each other, and members that lie."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
from sklearn.metrics import log_loss, mean_poisson_deviance
from torch import Tensor

from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.protocols.secureboost import participate
from colonnade.client.training.bins import binned
from colonnade.client.training.context import ClientContext
from colonnade.common.config.members import Config
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER, Cohort, Link
from colonnade.common.encryption.messages import BinCounts, HintPart, Masks, Nonces, Vectors
from colonnade.common.errors import ConfigError, ContractError, InputError
from colonnade.common.messaging.message import Message, schema
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.secureboost import Nodes, Sides, Sums, Wanted
from colonnade.common.run.state import State
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.forest import Forest
from colonnade.simulation.federation import Outcome, Simulation
from tests.support.federation import late

ROUNDS, DEPTH, RATE = 3, 3, 0.3


def config(*sets: str, name: str = "breast_cancer", **federation: Any) -> Config:
    outputs = {"task": "regression"} if name == "diabetes" else {"classes": {"breast_cancer": 2, "wine": 3}[name]}
    tree = {
        "federation": {
            "id": "trees", "parties": 3, "rounds": ROUNDS, "batch": 512, "seed": 0, "stop": "none", **outputs,
            "protocol": {"name": "secureboost", "depth": DEPTH, "rate": RATE, "least": 5}, **federation,
        },
        "server": {"labels": {"source": "sklearn", "name": name}},
        "every_party": {"data": {"source": "sklearn", "name": name, "split": "columns"}},
    }  # fmt: skip
    return parse(tree, sets)


BEST = "federation.protocol={name: secureboost, grow: best, leaves: 6, rate: 0.3, least: 5}"
SPLIT = "federation.protocol={name: split, embedding: 4}"
CLEAR = "federation.protocol.gradients=clear"
PRECISE = (CLEAR, "federation.protocol.precision=40")


def run(*sets: str, name: str = "breast_cancer", **more: Any) -> Outcome:
    return Simulation(config(*sets, name=name), record=True, **more).run()


FEW = "federation.rows.train=150"  # ciphertexts take their time
encrypted = cache(lambda: run(FEW, "parties.party2.chaos.delay=2s", save=True))


def forest(outcome: Outcome) -> Forest:
    found: Forest = outcome.server.state["forest"]
    return found


def scores(outcome: Outcome) -> NDArray[np.float64]:
    """Of all rows, float64 (rows, trees of a round)."""
    return forest(outcome).scores(outcome.server.state["start"].numpy())


@pytest.mark.parametrize(
    ("name", "kind"),
    [("breast_cancer", ""), ("breast_cancer", "weights"), ("wine", ""), ("diabetes", ""), ("diabetes", "poisson")],
)
def test_boosting_over_parties_is_boosting_over_the_joined_bins(tmp_path: Path, name: str, kind: str) -> None:
    """Two classes, several, a number, and a count: the scores of scikit-learn's trees, grown one after the other."""
    given = [*PRECISE, "federation.seed=3", *(["federation.loss=poisson"] if kind == "poisson" else [])]
    weights = np.ones(len(load_breast_cancer().target))
    if kind == "weights":
        weights = np.random.default_rng(0).choice([0, 0.5, 1, 4], len(weights))
        given.append(f"server.labels={{source: csv, path: {tmp_path}/y.csv, label: y, weight: w}}")
        lines = [f"{y},{w}" for y, w in zip(load_breast_cancer().target, weights, strict=True)]
        (tmp_path / "y.csv").write_text("\n".join(["y,w", *lines]))
    outcome = run(*given, name=name)
    ctx, train = outcome.server, outcome.server.schedule.partition.train.numpy()
    codes = np.concatenate([binned(client, least=5).codes for client in outcome.clients.values()], axis=1)
    labels, w = ctx.labels.numpy()[train], weights[train % len(weights)]
    if name == "diabetes":
        y = labels.astype(np.float64)
        start = np.log(y.mean(0)) if kind else y.mean(0)
    else:
        y = np.eye(int(labels.max()) + 1)[labels]
        start = np.log(np.average(y, axis=0, weights=w))
        if name == "breast_cancer":
            y, start = y[:, 1:], start[1:] - start[:1]
    f = np.tile(start, (len(codes), 1))
    for _ in range(ROUNDS):
        old = f.copy()
        for output in range(f.shape[1]):
            here = old[train]
            if kind == "poisson":
                g, h = np.exp(here[:, output]) - y[:, output], np.exp(here[:, output])
            elif name == "diabetes":
                g, h = here[:, output] - y[:, output], np.ones(len(here))
            else:
                many = np.exp(here) / np.exp(here).sum(1, keepdims=True)
                p = 1 / (1 + np.exp(-here[:, 0])) if name == "breast_cancer" else many[:, output]
                g, h = w * (p - y[:, output]), w * p * (1 - p)
            grower = TreeGrower(
                np.asfortranarray(codes[train].astype(np.uint8)), g.astype(np.float32), h.astype(np.float32),
                max_depth=DEPTH, min_samples_leaf=1, min_hessian_to_split=1.0, l2_regularization=1.0, shrinkage=RATE,
            )  # fmt: skip
            grower.grow()
            predictor = grower.make_predictor(np.arange(256.0)[None].repeat(codes.shape[1], 0)[:, :255])
            f[:, output] += predictor.predict_binned(np.asfortranarray(codes.astype(np.uint8)), 255, 1)
    np.testing.assert_allclose(scores(outcome), f, rtol=1e-5, atol=1e-5)
    test = ctx.schedule.partition.test.numpy()
    if kind == "poisson":
        deviance = mean_poisson_deviance(ctx.labels.numpy()[test, 0], np.exp(f[test, 0]))
        assert ctx.metrics["test_loss"] == pytest.approx(deviance, rel=1e-5)
    if kind == "weights":  # of training rows alone
        before, after = 1 / (1 + np.exp(-old[train, 0])), 1 / (1 + np.exp(-f[test, 0]))
        assert ctx.metrics["train_loss"] == pytest.approx(log_loss(labels, before, sample_weight=w), rel=1e-5)
        assert ctx.metrics["test_loss"] == pytest.approx(log_loss(ctx.labels[test], after), rel=1e-5)


def test_encrypted_sums_grow_the_trees_that_clear_ones_grow() -> None:
    """And though a party is late: all are waited for."""
    clear = run(CLEAR, FEW)
    assert same(forest(encrypted()), forest(clear))
    assert np.array_equal(scores(encrypted()), scores(clear))
    assert encrypted().server.metrics == clear.server.metrics
    assert clear.server.metrics["test_accuracy"] > 0.9
    four = BEST.replace("leaves: 6", "leaves: 4")
    best = forest(run(four, FEW))
    assert same(best, forest(run(four, CLEAR, FEW))) and not same(best, forest(clear))
    assert all((tree.party < 0).sum() == 4 for tree in best.trees)


def same(one: Forest, other: Forest) -> bool:
    """Compares trees and records, to the last bit."""
    trees = zip(one.trees, other.trees, strict=True)
    return one.records == other.records and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for a, b in trees for name in vars(a)
    )


def test_a_level_takes_two_exchanges_at_most_and_a_record_travels_once() -> None:
    levels = [
        [m for _, _, m in encrypted().messages if isinstance(m, Masks) and m.round == t] for t in range(1, ROUNDS + 1)
    ]
    parties = len(encrypted().clients)
    assert all(len(masks) <= DEPTH * parties for masks in levels)
    wanted: dict[str, list[tuple[int, bytes]]] = {}
    for _, party, message in encrypted().messages:
        if isinstance(message, Wanted):
            pairs = zip(message.columns.tolist(), message.left.numpy(), strict=True)
            wanted.setdefault(party, []).extend((column, left.tobytes()) for column, left in pairs)
    assert all(len(set(records)) == len(records) for records in wanted.values())
    trip = 0.05
    seconds = [event["seconds"] for event in run(CLEAR, delay=lambda *_: trip / 2).of_kind("round")]
    assert all(DEPTH * trip < each < 2 * DEPTH * trip + 1e-6 for each in seconds[1:])


def test_a_resumed_forest_is_the_unbroken_one() -> None:
    resumed = run(FEW, start=(2, encrypted().saved[2]))
    assert same(forest(resumed), forest(encrypted()))


NOISY = "federation.protocol.noise=0.5"


def test_noise_on_sums_is_the_partys_own_and_repeats_with_the_question() -> None:
    """Clear and resumed runs have the same noise, encrypted ones another; the totals of columns differ by it."""
    whole, hidden = run(CLEAR, NOISY, FEW, save=True), run(NOISY, FEW)
    forests = [forest(hidden), forest(whole), forest(run(CLEAR, FEW))]
    assert not any(same(one, other) for one, other in combinations(forests, 2))
    assert hidden.server.metrics["test_accuracy"] > 0.85
    assert same(forest(run(CLEAR, NOISY, FEW, start=(2, whole.saved[2]))), forest(whole))
    sums = [(party, m) for party, _, m in whole.messages if isinstance(m, Sums)]
    root = {party: m.y.numpy() for party, m in sums if (m.round, m.level) == (1, 0)}
    bins = {name: binned(ctx, least=5).counts for name, ctx in whole.clients.items()}
    off = np.concatenate([
        (np.add.reduceat(y, np.cumsum([0, *bins[name]])[:-1], axis=0) - totals_of(whole)) / np.sqrt(bins[name])[:, None]
        for name, y in root.items()
    ])  # fmt: skip
    assert 0.7 < off.std() / (0.5 * 2**10) < 1.3
    assert len({y[:10].tobytes() for y in root.values()}) == len(root)


def totals_of(outcome: Outcome) -> NDArray[np.int64]:
    """Sums of the first gradients and Hessians, in steps of 2^-10."""
    labels = outcome.server.labels[outcome.server.schedule.partition.train].double().numpy()
    p = np.full(len(labels), labels.mean())
    return np.array([np.rint(each * 2**10).sum() for each in (p - labels, p * (1 - p))])


def test_a_quorum_skips_trees_and_forgets_what_a_skipped_one_asked_for() -> None:
    """Party 2's sides come late in some rounds: what the others were asked for then has no number at the server."""

    delay = late("party2", Sides, seconds=2.0, rounds=range(3))
    outcome = run(CLEAR, "federation.quorum={need: 2, grace: 1}", "federation.rounds=6", delay=delay)
    skipped = len(outcome.of_kind("skipped"))
    assert 0 < skipped <= 2
    assert len(forest(outcome).trees) == 6 - skipped
    for party, client in enumerate(outcome.clients.values()):
        splits = client.state["splits"]
        for record, number in forest(outcome).records[party].items():
            column, left = splits[number]
            assert (column, bytes.fromhex(left).rstrip(b"\0")) == (record.column, record.left.rstrip(b"\0"))


def test_what_a_party_is_sent_depends_on_labels_in_ciphertexts_and_splits_alone() -> None:
    """With another's labels in the first tree, all else is equal: kinds, order, sizes, public fields."""
    messages = [message for _, to, message in encrypted().messages if to == "party1"]
    assert {type(message) for message in messages} <= {Nonces, Masks, Vectors, Wanted}
    hidden = {(Masks, "d"), (Vectors, "c"), (Wanted, "columns"), (Wanted, "left"), (Nonces, "nonces")}
    assert {
        (type(m), name) for m in messages for name in schema(type(m)) if isinstance(getattr(m, name), Tensor)
    } <= hidden
    words = torch.cat([m.c.flatten() for m in messages if isinstance(m, Vectors)]).numpy().view(np.uint64)
    top = np.bincount((words >> np.uint64(60)).astype(int), minlength=16) / len(words)
    assert np.abs(top - 1 / 16).max() < 0.025  # also where a row is in no node: 0 is encrypted as any number


def test_no_message_names_the_rows_of_a_node() -> None:
    """Fields that a party receives by row: ciphertexts alone."""
    by_row = [
        (kind, name)
        for kind in CONTRACTS["secureboost"].messages
        for name, spec in schema(kind).items()
        if "rows" in getattr(spec, "dims", ())
    ]
    assert by_row == [(Vectors, "c")]


class Lying:
    """A link over which some messages leave changed."""

    def __init__(self, link: Link, change: Callable[[Message], Message | None]) -> None:
        self._link, self._change = link, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    async def send(self, message: Message) -> None:
        """Sends what the change makes of it."""
        await self._link.send(self._change(message) or message)


def other_sums(ctx: ClientContext, message: Message) -> Message | None:
    if not isinstance(message, Sums):
        return None
    y = message.y.detach().clone()
    y[0] += 1
    return replace(message, y=ctx.release(y))


def other_sides(ctx: ClientContext, message: Message) -> Message | None:
    if not isinstance(message, Sides):
        return None
    return replace(message, s=ctx.release(message.s.detach() ^ 1))


def fewer_sides(ctx: ClientContext, message: Message) -> Message | None:
    return replace(message, s=ctx.release(message.s.detach()[1:])) if isinstance(message, Sides) else None


def shorter_sides(ctx: ClientContext, message: Message) -> Message | None:
    return replace(message, s=ctx.release(message.s.detach()[:, 1:])) if isinstance(message, Sides) else None


def other_kinds(ctx: ClientContext, message: Message) -> Message | None:
    return replace(message, kinds=ctx.release(message.kinds * 0 + 7)) if isinstance(message, BinCounts) else None


def other_hint(ctx: ClientContext, message: Message) -> Message | None:
    if not isinstance(message, HintPart):
        return None
    words = MaskedTensor(message.h.detach().roll(1, 1), "bins, encrypted")  # of another matrix
    return replace(message, h=ctx.admit_masked(words))


def fewer_bins(ctx: ClientContext, message: Message) -> Message | None:
    return replace(message, y=ctx.release(message.y.detach()[1:])) if isinstance(message, Sums) else None


def one_bin(ctx: ClientContext, message: Message) -> Message | None:
    return replace(message, counts=ctx.release(message.counts * 0 + 1)) if isinstance(message, BinCounts) else None


def noisy_sums(ctx: ClientContext, message: Message) -> Message | None:
    if not isinstance(message, Sums):
        return None
    return replace(message, y=ctx.release(message.y.detach() + (1 << 50)))


@pytest.mark.parametrize(
    ("lie", "sets", "said"),
    [
        (other_sums, (CLEAR,), r"party2.*Sums.*the same total over the bins of every column"),
        (other_sides, (CLEAR,), r"party2.*Sides.*the rows that its sums were over"),
        (fewer_sides, (CLEAR,), r"party2.*Sides.*splits"),
        (shorter_sides, (CLEAR,), r"party2.*Sides.*bytes"),
        (other_kinds, (CLEAR,), r"party2.*BinCounts.*a kind for every column"),
        (other_hint, (FEW,), r"party2.*Sums.*sums of its hint"),
        (fewer_bins, (CLEAR,), r"party2.*Sums.*bins"),
        (one_bin, (CLEAR,), r"party2.*BinCounts.*2 to 256 bins a column"),
        (noisy_sums, (FEW,), r"party2.*Sums"),
    ],
)
def test_a_party_that_contradicts_itself_is_named(lie: Any, sets: tuple[str, ...], said: str) -> None:
    async def side(ctx: ClientContext, link: Link, cfg: Any) -> None:
        await participate(ctx, Lying(link, lambda message: lie(ctx, message)), cfg)  # type: ignore[arg-type]

    with pytest.raises(ContractError, match=said):
        run(*sets, instead={"party2": side})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"columns": [0, 0]}, r"Wanted\.columns.*at most 1 at level 0.*2"),
        ({"columns": [99]}, r"Wanted\.columns.*0 to"),
        ({"columns": [-1]}, r"Wanted\.columns.*0 to"),
        ({"left": 0}, r"Wanted\.left.*an empty side"),
        ({"left": 255}, r"Wanted\.left.*an empty side"),
        ({"left": 64}, r"Wanted\.left.*no cut"),
        ({"first": 7}, r"Wanted\.first.*at most 0"),
        ({"level": 4}, r"Wanted\.level.*0"),
        ({"times": 2}, r"Wanted\.level.*once a level"),
    ],
)
def test_a_split_that_the_server_could_not_need_is_refused(wanted: dict[str, Any], said: str) -> None:
    async def ask(ctx: ServerContext, clients: Cohort, t: int) -> None:
        columns = torch.tensor(wanted.get("columns", [0]))
        left = torch.full((len(columns), 32), 255 if wanted.get("left") == 255 else 0, dtype=torch.uint8)
        left[:, 0] = wanted.get("left", 128)
        for _ in range(wanted.get("times", 1)):
            await clients.broadcast(Wanted(t, wanted.get("level", 0), wanted.get("first", 0), columns, left))
            await clients.collect(Sides, t, ctx.quorum)

    with pytest.raises(ContractError, match=said):
        run(CLEAR, instead={"server": scripted(1, ask)})


def scripted(
    levels: int, ask: Callable[[ServerContext, Cohort, int], Awaitable[None]], *, node: int = 0, vectors: int = 2
) -> Any:
    """A server that opens a round, asks for the sums of some levels, and then for something else."""

    async def side(ctx: ServerContext, clients: Cohort, _cfg: Any) -> None:
        async for t in clients.rounds(1):
            shapes = await clients.collect(BinCounts, t, ctx.quorum)
            own = torch.zeros(1, 32, dtype=torch.uint8)
            await clients.broadcast(Nonces(t, torch.cat([own, *(each.nonce[None] for each in shapes.values())])))
            for level in range(levels):
                await clients.broadcast(Masks(t, level, torch.zeros(0, vectors, dtype=torch.int64)))
                rows = len(ctx.schedule.partition.train)
                if level:
                    await clients.broadcast(Nodes(t, level, 0, torch.full((rows, 1, 1), node, dtype=torch.uint8)))
                else:
                    await clients.broadcast(Vectors(t, level, 0, torch.zeros(rows, vectors, dtype=torch.int64)))
                await clients.collect(Sums, t, ctx.quorum)
            await ask(ctx, clients, t)

    return side


async def nothing(ctx: ServerContext, clients: Cohort, t: int) -> None:
    await clients.collect(Sides, t, ctx.quorum)


def test_a_round_answers_no_more_levels_than_a_tree_has() -> None:
    with pytest.raises(ContractError, match=rf"Masks\.level.*at most {DEPTH - 1}"):
        run(CLEAR, instead={"server": scripted(DEPTH + 1, nothing)})
    with pytest.raises(ContractError, match=r"Masks\.d.*at most 2 at level 0.*3"):
        run(CLEAR, instead={"server": scripted(1, nothing, vectors=3)})


NEEDED = ROUNDS << DEPTH


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (f"max_vectors={NEEDED - 1}", f"party2.policy.max_vectors = {NEEDED - 1}: the federation has {NEEDED} vectors"),
        ("max_splits=1", "party2.policy.max_splits = 1: the federation has asked for [0-9]+ splits in this run"),
    ],
)
def test_a_party_answers_no_more_than_its_policy_says(policy: str, said: str) -> None:
    sent = list[Message]()

    async def side(ctx: ClientContext, link: Link, cfg: Any) -> None:
        await participate(ctx, Lying(link, sent.append), cfg)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=said):
        run(CLEAR, f"parties.party2.policy.{policy}", instead={"party2": side})
    assert ("vectors" in policy and not sent) or sum(len(m.s) for m in sent if isinstance(m, Sides)) <= 1


def test_a_party_answers_no_more_than_twice_what_the_trees_need(tmp_path: Path) -> None:
    """A server that asks for the same round again and again, in one start of the party after the other."""
    agreed, answered = config(CLEAR), list[int]()
    while len(answered) < 9:
        told = Privacy("party2", agreed.federation, PolicyConfig(), None, tmp_path / "ledger.jsonl")

        async def side(ctx: ClientContext, link: Link, cfg: Any, told: Privacy = told) -> None:
            await participate(replace(ctx, answers=told.answers), link, cfg)

        try:
            run(CLEAR, f"federation.rounds={ROUNDS}", instead={"party2": side})
        except ConfigError as refused:
            assert "max_vectors" in str(refused)
            break
        finally:
            told.close()
        answered.append(told.answers("vectors", 0).answered)
    assert len(answered) >= 2 and answered[-1] <= 2 * NEEDED


def test_a_node_that_the_level_does_not_have_is_refused() -> None:
    with pytest.raises(ContractError, match=r"Nodes\.n.*at most 1, got 2"):
        run(CLEAR, instead={"server": scripted(2, nothing, node=2)})


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("federation.compress={up: 8}",), "compress with the protocol secureboost"),
        (("federation.privacy={clip: 1, noise_multiplier: 1}",), "secureboost"),
        (("federation.participation=0.5",), "participation"),
        (("federation.classes=17",), "at most 16"),
        (("federation.protocol.depth=9",), "depth"),
        (("federation.protocol.leaves=9",), "leaves with grow = levels"),
        (("federation.protocol.grow=best",), "depth with grow = best"),
        (("federation.protocol.precision=40",), "at most [0-9]+ bits"),
        (("federation.protocol.precision=12", NOISY), "precision with noise"),
        (("federation.public_start=true", NOISY), "noise with public_start"),
        (("federation.loss=poisson",), "classes are not counted"),
        (
            (
                "federation.protocol={name: split, embedding: 4}",
                "server.labels={source: csv, path: y, label: y, weight: w}",
            ),
            "in split all rows count alike",
        ),
        (
            (
                "federation.protocol={name: split, embedding: 4}",
                "federation.task=regression",
                "federation.classes=0",
                "federation.loss=poisson",
            ),
            "split works with the loss of the task",
        ),
    ],
)
def test_what_does_not_go_with_exact_sums_is_refused(sets: tuple[str, ...], said: str) -> None:
    with pytest.raises((ConfigError, InputError)) as refused:
        run(*sets)
    assert re.search(said, f"{refused.value} {refused.value.hint}")


def test_directions_of_columns_reach_the_server_without_their_names() -> None:
    outcome = run(CLEAR, "parties.party1.monotone={bmi: rising, age: falling}", name="diabetes")
    assert [kind[3] for kind in outcome.server.state["columns"][0]] == [-1, 0, 1, 0]
    with pytest.raises(ConfigError, match=r"parties\.party1\.monotone: column 'bmj' is not in the table"):
        run(CLEAR, "parties.party1.monotone={bmj: rising}", name="diabetes")
    with pytest.raises(ConfigError, match=r"parties\.party1\.monotone with 3 classes"):
        config("parties.party1.monotone={ash: rising}", name="wine")


def test_a_run_ends_when_validation_rows_gain_no_more() -> None:
    sets = (
        "federation.rounds=60",
        "federation.stop={patience: 2}",
        "federation.protocol.rate=1",
        "federation.evaluate.every=1",
    )
    outcome = run(CLEAR, *sets, save=True)
    best, last = outcome.server.best.round, outcome.server.round
    assert 0 < best == last - 2 < 58
    kept = State(outcome.saved[best][SERVER]).keep("forest", lambda: Forest(3, 0))
    assert len(kept.trees) == best


def test_a_deep_tree_is_warned_of() -> None:
    outcome = run("federation.protocol.depth=7", "federation.rounds=1")
    assert any(event["reason"].startswith("depth 7: a round takes up to 1 MB") for event in outcome.of_kind("warning"))


def test_the_share_of_columns_and_rows_is_agreed_by_seed() -> None:
    sets = (CLEAR, "federation.protocol.columns=0.4", "federation.protocol.rows=0.5")
    assert same(forest(run(*sets)), forest(run(*sets)))
    assert not same(forest(run(*sets)), forest(run(CLEAR)))


def test_weights_of_classes_are_those_of_the_loss() -> None:
    weighted = run(CLEAR, "server.class_weights=[1, 8]")
    positive = (scores(weighted)[:, 0] > 0).mean()
    assert positive > (scores(run(CLEAR))[:, 0] > 0).mean()
