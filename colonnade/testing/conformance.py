"""The conformance suite: a class of tests for a protocol, built-in or of an installed package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
import yaml
from torch import Tensor

from colonnade.cli.checks.check import check
from colonnade.client.protocols import LOCAL, SPLITS
from colonnade.client.transcript.capture import read_capture
from colonnade.common.errors import ColonnadeError, InputError
from colonnade.common.run.plug_ins import UserCodeFault
from colonnade.common.run.run_folder import RunFolder
from colonnade.server.protocols import ACTIVE, FORESTS, JOINT
from colonnade.server.training.fusion.joint import Decided, Joint
from colonnade.simulation.federation import Outcome
from colonnade.testing import differences, traffic
from colonnade.testing.trial import DELAY, GRACE, ROUNDS, SLOW, Expected, Trial, explain

T = TypeVar("T")

_SHOWN = 5  # faults shown per test
_DRAWS = (
    "draw from a generator of the federation's seed that ctx.state keeps, never from those of Python, numpy or torch"
)
_STATE = "what outlives a round belongs in ctx.state.keep(name, make): attributes, globals and local variables do not"


class Conformance:
    """Tests of a protocol that follows docs/adding_a_protocol.md, on the virtual clock with the bundled digits."""

    trial: Trial
    _failed = False

    @classmethod
    def teardown_class(cls) -> None:
        """Frees the runs, which hold every message and state, when the class's tests are done."""
        cls.trial.forget()
        cls._failed = False

    def test_the_contract_says_who_sees_what(self) -> None:
        """`colonnade protocols` shows it to its readers."""
        contract = self._needed(lambda: self.trial.contract)
        empty = (name for name in ("title", "source") if not getattr(contract, name).strip())
        _refuse(f"CONTRACT.{name} is empty" for name in empty)
        _refuse(f"CONTRACT.sees has no {role!r}" for role in ("server", "party") if not contract.sees.get(role))

    def test_check_accepts_it(self, tmp_path: Path) -> None:
        """`colonnade check` builds every member's model and finds nothing wrong."""
        path = tmp_path / "federation.yaml"
        path.write_text(yaml.safe_dump(self._needed(self.trial.tree)), encoding="utf-8")
        self._needed(lambda: check(path, self.trial.expected.sets))

    def test_equal_seeds_give_equal_bits(self) -> None:
        """Compares messages, losses, states and metrics of two runs whose process-wide generators start differently."""
        alone, again = self._alone(), _of(lambda: self.trial.run(again=1))
        said = differences.of_runs(alone, again, self.trial.expected.fresh)
        _same(said, "two runs from one seed differ", _DRAWS)

    def test_only_declared_messages_travel(self) -> None:
        """Kinds, senders, types and ranks are the contract's, and every declared kind travels."""
        run = self._alone()
        _refuse(traffic.undeclared(self.trial.contract, run, self.trial.expected.unused))

    def test_every_dimension_is_as_the_contract_says(self) -> None:
        """A dimension has the contract's limit, or the rows of the round."""
        run = self._alone()
        _refuse(traffic.other_sizes(self.trial.contract, run, self.trial.expected))

    def test_bytes_are_exact_and_messages_survive_the_wire(self) -> None:
        """Bytes follow from the shapes, and every message is equal after encoding and decoding."""
        run = self._alone()
        _refuse(traffic.other_bytes(self.trial.contract, run))

    def test_every_message_of_a_party_is_in_its_ledger(self) -> None:
        """No message of a party bypasses the egress."""
        _refuse(traffic.around_the_egress(self._alone()))

    @pytest.mark.parametrize("round", [1, ROUNDS - 1])
    def test_a_resumed_run_ends_as_an_unbroken_one(self, round: int) -> None:
        """After any checkpoint, to the last bit of every member's state."""
        alone = self._alone()
        if missing := sorted({SLOW, *alone.clients} - set(alone.saved.get(round, {}))):
            pytest.fail(f"no state of {missing[0]} after round {round}: take rounds from server.rounds", pytrace=False)
        resumed = _of(lambda: self.trial.resumed(round))
        said = (
            differences.of_losses(differences.losses(alone)[round:], differences.losses(resumed), round + 1)
            or differences.of_states(alone, resumed, ROUNDS)
            or differences.of_metrics(alone, resumed)
        )
        _same(said, f"a run resumed after round {round} differs from an unbroken one", _STATE)

    def test_waiting_for_a_late_party_changes_nothing(self) -> None:
        """A delay alone changes no bit, unless the order of messages is declared to matter."""
        alone, delayed = self._alone(), _of(lambda: self.trial.delayed)
        _refuse_unread(delayed.server.metrics)
        if self.trial.expected.order_matters:
            return
        said = (
            differences.of_losses(differences.losses(alone), differences.losses(delayed))
            or differences.of_states(alone, delayed, ROUNDS)
            or differences.of_metrics(alone, delayed)
        )
        remedy = "declare Expected(order_matters=True) if the protocol is asynchronous"
        _same(said, f"the run differs if {SLOW} responds {DELAY:g} s late and all are waited for", remedy)

    def test_a_run_goes_on_without_a_late_party(self) -> None:
        """With a quorum the run ends, counts the answers that did not come in time, and is reproducible."""
        self._alone()
        if not self.trial.contract.messages:
            pytest.skip("it sends no messages")
        run = _of(self.trial.missed)
        if not self.trial.expected.needs_all:
            _refuse_unread(run.server.metrics)
        missing = {event["round"] for event in run.of_kind("missing") if event["party"] == SLOW}
        if waited := sorted(set(range(1, ROUNDS + 1)) - missing):
            pytest.fail(
                f"round {waited[0]}: no answer of {SLOW} counts as missing, although each comes {DELAY:g} s late and "
                f"the quorum allows {GRACE:g} s: pass ctx.quorum to `collect`, and the responses to ctx.record",
                pytrace=False,
            )
        said = differences.of_runs(run, _of(lambda: self.trial.missed(again=1)), self.trial.expected.fresh)
        _same(said, "two such runs differ", _DRAWS)

    def test_captures_hold_every_message(self, tmp_path: Path) -> None:
        """A party's capture, as `colonnade attack` reads it, has the messages that crossed its link."""
        self._alone()
        run = _of(lambda: self.trial.captured(tmp_path))
        federation = run.server.federation
        for party in run.clients:
            own = RunFolder(tmp_path).party(party)
            held = [
                record
                for path in (own.capture, own.evaluation_capture)
                for record in _of(lambda path=path: list(read_capture(path, federation)))  # type: ignore[misc]
            ]
            for way, place in (("out", 0), ("in", 1)):
                crossed = [sent[2] for sent in run.messages if sent[place] == party]
                kept = [record.message for record in held if record.way == way]
                found = {id(one) for one in crossed for two in kept if _equal(one, two)}
                lost = (one for one in crossed if id(one) not in found)
                _refuse(f"{party}: its capture lacks {type(one).__name__} of round {one.round}" for one in lost)

    def test_the_model_in_its_parts_scores_as_in_training(self) -> None:
        """`joint` and `local`, which `explain` and `predict` use, give the test loss at the end of training."""
        run, (joint, parts) = self._parts()
        rows = run.server.schedule.partition.test
        logits = joint.of_sides(parts) if isinstance(joint, Decided) else _logits(joint, parts)
        score = run.server.score()
        score.add(logits, run.server.labels[rows])
        wanted, got = run.server.metrics["test_loss"], score.metrics["loss"]
        if not math.isclose(wanted, got, rel_tol=self.trial.expected.rounding):
            said = f"`joint` of the parties' `local` parts has the test loss {got:.7g}, training {wanted:.7g}"
            remedy = "`joint(...).logits` computes what `serve` evaluates, with every factor"
            pytest.fail(f"{said}\n({remedy})", pytrace=False)

    def test_heads_are_the_weights_of_linear_logits(self) -> None:
        """Where the logits are linear in the parts, `heads` gives their weights, which `explain` shows."""
        _, (joint, parts) = self._parts()
        given = None if isinstance(joint, Decided) else joint.heads()
        if isinstance(joint, Decided) or given is None:
            pytest.skip("it has no `heads`")
        nothing = [torch.zeros(part.shape[1], part.shape[1]) for part in parts]
        base = _logits(joint, nothing)
        measured = []
        for place, part in enumerate(parts):
            unit = [*nothing[:place], torch.eye(part.shape[1]), *nothing[place + 1 :]]
            measured.append(_logits(joint, unit) - base)
        linear = base[0] + sum(part @ weights for part, weights in zip(parts, measured, strict=True))
        if not torch.allclose(_logits(joint, parts), linear, rtol=1e-3, atol=1e-4):
            pytest.skip("its logits are not linear in the parts")
        for party, got, wanted in zip(self.trial.alone.clients, given, measured, strict=True):
            if got.shape != wanted.shape or not torch.allclose(got.cpu(), wanted, rtol=1e-3, atol=1e-5):
                pytest.fail(
                    f"{party}: `joint(...).heads()` are not the weights that its part has in the logits: multiply the "
                    "layer's by every factor on the way",
                    pytrace=False,
                )

    def test_it_learns(self) -> None:
        """The test accuracy reaches the expected one, and the loss falls where the server records one."""
        self._alone()
        run, least = _of(lambda: self.trial.learned), self.trial.expected.accuracy
        losses = differences.losses(run)
        third = max(len(losses) // 3, 1)
        begin, end = sum(losses[:third]) / third, sum(losses[-third:]) / third
        if (found := run.server.metrics.get("test_accuracy", 0.0)) < least or not end < begin:
            pytest.fail(
                f"test accuracy {found:.3f} after {self.trial.expected.epochs} epochs, expected {least:g}; the mean "
                f"loss of a third of the rounds went from {begin:.4f} to {end:.4f}. Other settings: Expected(sets=...)",
                pytrace=False,
            )

    def _needed(self, make: Callable[[], T]) -> T:
        """A result that all later tests need too: the first without it fails, and the others are skipped."""
        __tracebackhide__ = True
        if type(self)._failed:
            pytest.skip("nothing can be tested before what the first failure says is mended")
        try:
            return _of(make)
        except BaseException:
            type(self)._failed = True
            raise

    def _alone(self) -> Outcome:
        return self._needed(lambda: self.trial.alone)

    def _parts(self) -> tuple[Outcome, tuple[Joint | Decided, list[Tensor]]]:
        """The undisturbed run, its joint model, and the outputs of every party's `local` for the test rows."""
        run, name = self._alone(), self.trial.name
        whole = name in FORESTS or (name in LOCAL and (name in JOINT or name in ACTIVE))
        if self.trial.contract.exchange.predicts and not whole:
            pytest.fail("CONTRACT.exchange says that a model can predict: it needs `joint` and `local`", pytrace=False)
        if not whole or run.server.federation.privacy is not None:
            pytest.skip("there is no joint model, or noise on its evaluations")
        return run, _of(lambda: _joint_and_parts(run))


def conformance(name: str, expected: Expected | None = None, /, **keys: Any) -> type[Conformance]:
    """A class of tests for one protocol, to be bound to a name that begins with `Test`.

    Args:
        keys: its keys under `federation.protocol`.
    """
    return type(f"Conformance of {name}", (Conformance,), {"trial": Trial(name, expected or Expected(), keys)})


def _of(make: Callable[[], T]) -> T:
    """The result of a run, or a failed test that says how the run ended."""
    __tracebackhide__ = True
    try:
        return make()
    except UserCodeFault as crash:
        said = f"the run ended with an error in {crash}"
    except InputError as refused:
        said = f"the run was refused: {explain(refused)}"
    except ColonnadeError as error:
        said = f"the run ended with {explain(error)}"
    except TimeoutError as endless:
        said = f"{endless}: a side waits for a message without end; pass ctx.quorum to `collect`"
    except RuntimeError as stuck:
        if "every coroutine waits" not in str(stuck):
            raise
        said = f"the run hangs: {stuck}. Each side waits for a message that the other does not send"
    pytest.fail(said, pytrace=False)


def _refuse(faults: Iterable[str]) -> None:
    __tracebackhide__ = True
    if found := list(islice(faults, _SHOWN)):
        pytest.fail("\n".join(found), pytrace=False)


def _same(difference: str, what: str, remedy: str) -> None:
    __tracebackhide__ = True
    if difference:
        pytest.fail(f"{what}: {difference}\n({remedy})", pytrace=False)


def _refuse_unread(metrics: dict[str, float]) -> None:
    __tracebackhide__ = True
    if not metrics or not all(map(math.isfinite, metrics.values())):
        pytest.fail(f"the run ends without a finite evaluation: {metrics}", pytrace=False)


def _equal(one: Any, two: Any) -> bool:
    return type(one) is type(two) and not differences.differing_field(one, two)


def _logits(joint: Joint, parts: list[Tensor]) -> Tensor:
    with torch.no_grad():
        return joint.logits(parts).cpu()


def _joint_and_parts(run: Outcome) -> tuple[Joint | Decided, list[Tensor]]:
    protocol, rows = run.server.federation.protocol, run.server.schedule.partition.test
    name, clients = protocol.name, run.clients.values()
    if name in FORESTS:
        sides = [SPLITS[name](client, protocol).of_rows(rows) for client in clients]
        return FORESTS[name](run.server, protocol), sides
    parts = []
    for client in clients:
        local = LOCAL[name](client, protocol)
        local.eval()
        with torch.no_grad():
            parts.append(local.of_rows(client.features, rows).cpu())
    if name in ACTIVE:
        return ACTIVE[name](run.server, protocol)(rows), parts
    return JOINT[name](run.server, protocol), parts
