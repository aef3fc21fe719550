"""`federation.loss`: the loss of another package, at the server."""

from __future__ import annotations

import pytest
import torch

from colonnade.common.config.members import Config
from colonnade.common.contracts.embeddings import Embedding
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.errors import ConfigError
from colonnade.common.models.losses import CrossEntropy
from colonnade.common.parsing.file import parse
from colonnade.common.protocols import split
from colonnade.server.training.context import ServerContext
from tests.support.federation import federate, parameters, tree
from tests.support.packages import Packages

pytestmark = pytest.mark.slow

PLAIN = """
from torch.nn import functional

def plain(scores, targets):
    return functional.cross_entropy(scores, targets, reduction="none")
"""
SQUARES = """
def squares(scores, targets):
    return 0.5 * (scores - targets).square().sum(dim=1)
"""
TAKES = [name for name in NAMES if CONTRACTS[name].exchange.any_loss]
AGREED = {"rounds": 3, "epochs": 0}


def install(packages: Packages, source: str, name: str = "plain", version: str = "1.0") -> None:
    packages.install("colonnade-own", "losses", {name: f"own_loss:{name}"}, source, version)


def named(protocol: str, **federation: object) -> Config:
    return parse(tree({"name": protocol}, **{**AGREED, "loss": "plain", **federation}))


@pytest.mark.parametrize("protocol", TAKES)
def test_cross_entropy_of_a_package_trains_as_the_built_in_one(packages: Packages, protocol: str) -> None:
    install(packages, PLAIN)
    ours = federate(parse(tree({"name": protocol}, **AGREED)))
    theirs = federate(named(protocol))
    for member, values in parameters(ours).items():
        torch.testing.assert_close(parameters(theirs)[member], values, rtol=1e-4, atol=1e-5)
    assert theirs.server.metrics["train_loss"] == pytest.approx(ours.server.metrics["train_loss"], rel=1e-5)
    assert type(theirs.server.loss) is not CrossEntropy  # it is the package's that was compared


def test_another_loss_trains_another_model(packages: Packages) -> None:
    install(packages, PLAIN.replace('"none")', '"none") * 0.5'))
    ours, theirs = federate(parse(tree({"name": "split"}, **AGREED))), federate(named("split"))
    assert theirs.server.metrics["train_loss"] < 0.8 * ours.server.metrics["train_loss"]
    assert abs(theirs.server.metrics["val_loss"] - ours.server.metrics["val_loss"]) < 0.5  # both are cross-entropy


def test_squared_loss_of_a_package_in_a_regression(packages: Packages) -> None:
    install(packages, SQUARES.replace("squares", "plain"))
    made = tree({"name": "split"}, task="regression", **AGREED)
    del made["federation"]["classes"]
    made["server"]["labels"]["name"] = made["every_party"]["data"]["name"] = "diabetes"
    ours = federate(parse(made))
    made["federation"]["loss"] = "plain"
    theirs = federate(parse(made))
    assert theirs.server.metrics["test_rmse"] == pytest.approx(ours.server.metrics["test_rmse"], rel=1e-4)


@pytest.mark.parametrize("protocol", [name for name in NAMES if name not in TAKES])
def test_protocols_that_need_more_of_a_loss_refuse_it(packages: Packages, protocol: str) -> None:
    install(packages, PLAIN)
    with pytest.raises(ConfigError, match=rf"^federation.loss = 'plain': {protocol} works with the loss") as refused:
        named(protocol)
    assert refused.value.hint == f"leave it out, or take one of {', '.join(TAKES)}"


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("server.class_weights=balanced", "class_weights"),
        ("server.privacy.labels={epsilon: 1}", "privacy.labels"),
        ("server.privacy.answers={clip: 1, head_clip: 1, noise_multiplier: 1, delta: 1e-5}", "privacy.answers"),
    ],
)
def test_settings_made_for_the_built_in_losses_are_refused(packages: Packages, setting: str, key: str) -> None:
    install(packages, PLAIN)
    with pytest.raises(ConfigError, match=rf"^server.{key} with federation.loss = 'plain'"):
        parse(tree({"name": "vafl"}, **AGREED, loss="plain"), (setting,))


@pytest.mark.parametrize("loss", ["plian", "cross_entropy"])
def test_an_unknown_loss_is_refused_with_the_remedy(packages: Packages, loss: str) -> None:
    install(packages, PLAIN)
    with pytest.raises(ConfigError, match=rf"^federation.loss = '{loss}': unknown loss") as refused:
        named("split", loss=loss)
    assert ("did you mean 'plain'?" in str(refused.value)) == (loss == "plian")
    assert "install the package that registers it (colonnade.losses)" in refused.value.hint


def test_a_party_needs_no_import_of_it_and_the_server_does(packages: Packages) -> None:
    install(packages, "import nowhere_at_all")
    whole = tree({"name": "split"}, **AGREED, loss="plain")
    server = whole.pop("server")
    assert parse(whole).server is None  # a party's file
    with pytest.raises(ConfigError, match=r"^the loss plain of colonnade-own 1.0 cannot be imported: ModuleNotFound"):
        parse(whole | {"server": server})


def test_the_default_is_no_part_of_the_agreement_and_a_name_is(packages: Packages) -> None:
    install(packages, PLAIN)
    without, named_one = parse(tree({"name": "split"}, **AGREED)).federation, named("split").federation
    assert "loss" not in without.hashes()  # older runs resume
    assert set(named_one.lasting_hashes()) - set(without.lasting_hashes()) == {"loss"}


OF = r"^the loss plain of colonnade-own 1\.0"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('no')", rf"{OF} failed: RuntimeError: no"),
        ("return scores.missing", rf"{OF} failed: AttributeError"),
        ("return scores.sum(dim=1).mean()", rf"{OF}: it returned \(\) for 256 rows.*not their mean"),
        ("return scores", rf"{OF}: it returned \(256, 10\) for 256 rows"),
        ("return 3.0", rf"{OF}: it returned float, expected a tensor"),
        ("return scores.sum(dim=1).detach()", rf"{OF}: its result cannot be differentiated"),
        ("return scores.sum(dim=1).to_sparse()", rf"{OF} failed: NotImplementedError"),
        ("return scores.argmax(dim=1)", rf"{OF}: its result cannot be differentiated"),
        ("return scores.sum(dim=1) * float('nan')", rf"{OF}: it gave a loss that is not finite"),
        ("return (scores - scores).sum(dim=1).sqrt()", rf"{OF}: it gave a gradient that is not finite"),
    ],
)
@pytest.mark.parametrize("protocol", ["split", "local"])  # by `mean`, and by `gradient`
def test_a_loss_that_fails_ends_the_run_with_its_name(packages: Packages, protocol: str, body: str, said: str) -> None:
    install(packages, f"def plain(scores, targets):\n    {body}\n")
    config = named(protocol)
    with pytest.raises(ConfigError, match=said) as failed:
        federate(config)
    assert "colonnade-own" in failed.value.hint


def test_a_loss_that_changes_its_input_changes_nothing_else(packages: Packages) -> None:
    install(packages, PLAIN)
    ours = federate(named("split"))
    spoil = "    found = functional.cross_entropy(scores, targets.clone(), reduction='none')\n    targets.zero_()\n"
    install(
        packages,
        PLAIN.partition("    return")[0] + spoil + "    scores.data.zero_()\n    return found\n",
        version="2.0",
    )
    theirs = federate(named("split"))
    for member, values in parameters(ours).items():
        assert torch.equal(parameters(theirs)[member], values)


def test_an_error_of_the_backward_pass_has_the_name_too(packages: Packages) -> None:
    install(packages, PLAIN + "\n_plain = plain\ndef plain(scores, targets):\n    found = _plain(scores, targets)\n"
            "    targets.zero_()\n    return found\n")  # fmt: skip
    with pytest.raises(ConfigError, match=rf"{OF} failed: RuntimeError: .*modified by an inplace operation"):
        federate(named("split"))


def test_a_protocol_that_trains_with_a_loss_of_its_own_is_refused_in_its_first_round(packages: Packages) -> None:
    install(packages, PLAIN)

    async def serve(ctx: ServerContext, clients: Cohort, cfg: split.Config) -> None:
        async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
            responses = await clients.collect(Embedding, t, ctx.quorum, width=cfg.embedding)
            ctx.record(t, 1.0, responses)

    with pytest.raises(ConfigError, match="the protocol split ended a round without its gradient"):
        federate(named("split"), instead={SERVER: serve})


def test_something_that_is_no_function_is_refused(packages: Packages) -> None:
    install(packages, "plain = 3")
    with pytest.raises(ConfigError, match=rf"{OF}: it is int, expected a function"):
        named("split")
