"""Broken variants of the example, each of which the conformance suite finds and names."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from colonnade.testing import Expected, conformance
from colonnade.testing.conformance import Conformance
from tests.support.outside import EXAMPLE, Install

FAILED, SKIPPED = pytest.fail.Exception, pytest.skip.Exception
SEND = "await server.send(Embedding(t, ctx.release(h, rows=batch)))"
BACKWARD = "bottom.backward(told.a * told.s.to(ctx.device))"
COLLECT = "await clients.collect(Embedding, t, ctx.quorum, rows=len(batch), width=cfg.embedding)"
RECORD = "ctx.record(t, loss, answers)"
KEY = "    embedding: int ="
ROUNDS = "    async for t in server.rounds(after=ctx.round):"
PARTIAL = "from functools import partial\n"
ASYNCIO = f"import asyncio\n{PARTIAL}"
NOTE = '''
@message
class Note(ServerMessage):
    """Not in the contract."""

    loss: float

'''


def changed(*pairs: tuple[str, str]) -> str:
    """The example with texts replaced."""
    source = EXAMPLE.read_text()
    for old, new in pairs:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def refused(test: str, *arguments: object, expected: Expected | None = None) -> str:
    """The words of a test of the suite that fails."""
    with pytest.raises(FAILED) as failed:
        getattr(conformance("signs", expected, embedding=16)(), test)(*arguments)
    return str(failed.value)


@pytest.mark.parametrize(
    "draw",
    [
        "import numpy as np\n        h = h + 1e-3 * float(np.random.standard_normal())",
        "import random\n        h = h + 1e-3 * random.random()",
    ],
    ids=["numpy", "python"],
)
def test_draws_of_the_processs_own_generators(install: Install, draw: str) -> None:
    install("signs", "colonnade_signs", changed((SEND, f"{draw}\n        {SEND}")))
    said = refused("test_equal_seeds_give_equal_bits")
    assert said.startswith("two runs from one seed differ: Embedding from party1 to server, round 1: field h differs")
    assert "ctx.state keeps" in said


def test_an_undeclared_message(install: Install) -> None:
    source = changed(
        ("def limits(", NOTE + "\ndef limits("), (RECORD, f"await clients.broadcast(Note(t, 1.0))\n        {RECORD}")
    )
    install("signs", "colonnade_signs", source)
    said = refused("test_only_declared_messages_travel")
    assert "this side sent Note: expected one of Embedding, Evaluation, Signs, got a kind that is not in " in said


def test_a_declared_message_that_never_travels(install: Install) -> None:
    source = changed(("def limits(", NOTE + "\ndef limits("), ("Signs, Evaluation)", "Signs, Evaluation, Note)"))
    install("signs", "colonnade_signs", source)
    assert refused("test_only_declared_messages_travel").startswith("no run sent Note: take it out of the contract")
    conformance("signs", Expected(unused=("Note",)), embedding=16)().test_only_declared_messages_travel()
    wrong = refused("test_only_declared_messages_travel", expected=Expected(unused=("Note", "Signs")))
    assert wrong == "Expected(unused=...) names Signs, which is sent or not declared"


def test_a_limit_above_the_sizes_that_travel(install: Install) -> None:
    install("signs", "colonnade_signs", changed(('"width": config.embedding}', '"width": 2 * config.embedding}')))
    said = refused("test_every_dimension_is_as_the_contract_says")
    assert said.startswith("Embedding from party1 to server, round 1: h has width = 16; the contract's limit is 32")


def test_a_scalar_that_the_wire_does_not_carry(install: Install) -> None:
    source = changed(("    a: float\n", "    a: float\n    n: int\n"), (".item())", ".item(), -1)"))
    install("signs", "colonnade_signs", source)
    said = refused("test_bytes_are_exact_and_messages_survive_the_wire")
    assert "round 1: it cannot travel: an integer field holds 0 to 2^32 - 1, not -1" in said


def test_state_outside_ctx_state(install: Install) -> None:
    """A running mean of the signs' size, in a local variable."""
    source = changed(
        (ROUNDS, f"    mean = 0.0\n{ROUNDS}"),
        (BACKWARD, "mean = 0.5 * mean + told.a\n        bottom.backward(mean * told.s.to(ctx.device))"),
    )  # fmt: skip
    install("signs", "colonnade_signs", source)
    said = refused("test_a_resumed_run_ends_as_an_unbroken_one", 1)
    assert said.startswith("a run resumed after round 1 differs from an unbroken one: the loss of round 3")
    assert "ctx.state.keep(name, make)" in said


def test_a_server_that_waits_for_a_straggler(install: Install) -> None:
    """A forgotten quorum."""
    waits = "Quorum(need=None, limit=float('inf'))"
    source = changed((COLLECT, COLLECT.replace("ctx.quorum", waits)))
    source = source.replace("import Responses\n", "import Quorum, Responses\n")
    install("signs", "colonnade_signs", source)
    said = refused("test_a_run_goes_on_without_a_late_party")
    assert said.startswith("round 1: no answer of party2 counts as missing") and "pass ctx.quorum" in said


def test_a_party_that_waits_without_end(install: Install) -> None:
    """A party that was passed over spins until the server has written to it."""
    told = "told = await server.recv(Signs, t, rows=len(batch), width=cfg.embedding)"
    spin = f"{told}\n        while told is None:\n            await asyncio.sleep(1)\n            {told}"
    source = changed(
        (told, spin), ("from functools import partial\n", "import asyncio\nfrom functools import partial\n")
    )
    install("signs", "colonnade_signs", source)
    said = refused("test_a_run_goes_on_without_a_late_party")
    assert "the run does not end" in said or "the run hangs" in said


def test_a_party_that_waits_for_what_nobody_sends(install: Install) -> None:
    told = "told = await server.recv(Signs, t, rows=len(batch), width=cfg.embedding)"
    sent = "await clients.broadcast({party: _signs(t, dh[party]) for party in answers})"
    again = "while True:\n            await clients._mailbox.change()"
    source = changed((told, "told = await server.mailbox.change()"), (sent, again))
    install("signs", "colonnade_signs", source)
    assert refused("test_it_learns").startswith("the run hangs: every coroutine waits for another")


def test_a_contract_without_what_a_party_sees(install: Install) -> None:
    install("signs", "colonnade_signs", changed(('"party": "the signs', '"parties": "the signs')))
    assert refused("test_the_contract_says_who_sees_what") == "CONTRACT.sees has no 'party'"


def test_a_model_that_cannot_be_built(install: Install, tmp_path: Path) -> None:
    """The protocol's own default reads images, and its parties have columns."""
    base = "import ProtocolConfig\n"
    source = changed(
        (base, f"import Defaults, {base[7:]}"), (KEY, f'    defaults = Defaults(model={{"name": "lenet"}})\n{KEY}')
    )
    install("signs", "colonnade_signs", source)
    assert "the run was refused" in refused("test_check_accepts_it", tmp_path)


def test_a_message_that_the_capture_never_sees(install: Install, tmp_path: Path) -> None:
    """It is handed to the carrier below the capture."""
    source = changed((SEND, f"{SEND}\n        _skip(server, Embedding(t, h.detach() + 1))"))
    source += """

def _skip(server: Link, message: Embedding) -> None:
    egress = server._carry
    recorded = egress._carry.__closure__ or ()  # none in a run without a capture
    carry = next((cell.cell_contents for cell in recorded if callable(cell.cell_contents)), id)
    carry(message)
"""
    install("signs", "colonnade_signs", source)
    said = refused("test_captures_hold_every_message", tmp_path)
    assert said.splitlines()[0] == "party1: its capture lacks Embedding of round 1"


def test_a_party_whose_answer_depends_on_when_it_is_read(install: Install) -> None:
    source = changed((SEND, f"h = h * (1 + asyncio.get_running_loop().time())\n        {SEND}"))
    source = source.replace(PARTIAL, ASYNCIO)
    install("signs", "colonnade_signs", source)
    said = refused("test_waiting_for_a_late_party_changes_nothing")
    assert said.startswith("the run differs if party2 responds 5 s late and all are waited for: the loss of round 2")


def test_a_message_around_the_ledger(install: Install) -> None:
    source = changed((SEND, f"{SEND}\n        server._carry._carry(Embedding(t, h.detach()))"))
    install("signs", "colonnade_signs", source)
    said = refused("test_every_message_of_a_party_is_in_its_ledger")
    assert said.splitlines()[0].startswith("party1 sent 8 Embedding")


def test_what_was_not_released(install: Install) -> None:
    install("signs", "colonnade_signs", changed((SEND, "await server.send(Embedding(t, h.detach()))")))
    said = refused("test_only_declared_messages_travel")
    assert "this side sent Embedding.h: expected a tensor from ctx.release, got another" in said


@pytest.mark.parametrize(
    ("test", "line", "said"),
    [
        ("test_the_model_in_its_parts_scores_as_in_training", "logits = lambda h: 1.01 * JointHead.logits(whole, h)",
         "`joint` of the parties' `local` parts has the test loss "),  # every row's class is the trained model's
        ("test_heads_are_the_weights_of_linear_logits", "heads = lambda: [1.01 * w for w in JointHead.heads(whole)]",
         "party1: `joint(...).heads()` are not the weights that its part has in the logits"),
    ],
    ids=["logits", "heads"],
)  # fmt: skip
def test_a_joint_model_that_lacks_a_factor(install: Install, test: str, line: str, said: str) -> None:
    source = changed(("whole, present = joint(ctx, cfg)", "whole, present = JointHead(ctx, cfg.embedding)"))
    made = "    return JointHead(ctx, cfg.embedding)"
    assert source.count(made) == 1
    source = source.replace(made, f"    whole = JointHead(ctx, cfg.embedding)\n    whole.{line}\n    return whole")
    install("signs", "colonnade_signs", source)
    assert refused(test).startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"rows", "width")', '"rows", "widht")', "refused: ConfigError: the protocol signs: Signs.s has a dimension "
         "'widht', and `limits` of its contract no such key (did you mean 'width'?)"),
        (RECORD, "pass", "refused: ConfigError: the protocol signs ended round 1 without a record"),
        (RECORD, "answers['x']", ", in serve: KeyError: 'x'"),
        ('Exchange("embeddings"', 'Exchange("embedding"', "sends='embedding'): unknown (did you mean 'embeddings'?)"),
        ('"gradients")', '"gradient")', "returns='gradient'): unknown (did you mean 'gradients'?)"),
        ('cfg.embedding, "zero")', 'cfg.embedding, "zeros")', "StandIn(how='zeros'): unknown (did you mean 'zero'?)"),
        ('Literal["signs"] = "signs"', 'Literal["sings"] = "sings"', "`name: Literal['signs'] = 'signs'`"),
    ],
    ids=["dimension", "no record", "crash", "sends", "returns", "stand-in", "name"],
)  # fmt: skip
def test_one_mistake_fails_one_test(install: Install, tmp_path: Path, old: str, new: str, said: str) -> None:
    install("signs", "colonnade_signs", changed((old, new)))
    suite, failed = conformance("signs", embedding=16), []
    for test, *arguments in (("test_check_accepts_it", tmp_path), ("test_equal_seeds_give_equal_bits",)):
        try:
            getattr(suite(), test)(*arguments)
        except (FAILED, SKIPPED) as ended:
            failed += [str(ended)] * isinstance(ended, FAILED)
    assert len(failed) == 1 and said in failed[0] and failed[0].startswith("the run ")
    assert ("the run ended with an error in " in failed[0]) == ("in serve" in failed[0])
    with pytest.raises(SKIPPED, match="first failure"):
        suite().test_it_learns()


def test_one_that_does_not_learn(install: Install) -> None:
    idle = (BACKWARD, "bottom.backward(0 * told.s.to(ctx.device))"), ("        whole.step()\n", "")
    install("signs", "colonnade_signs", changed(*idle))
    assert refused("test_it_learns").startswith("test accuracy 0.")


def test_a_package_that_is_not_installed() -> None:
    said = refused("test_equal_seeds_give_equal_bits")
    assert "no installed package registers a protocol 'signs'" in said and "pip install -e ." in said


def test_a_test_of_the_suite_has_a_broken_protocol_here() -> None:
    """A new test of the suite that no broken protocol fails would not be noticed to be empty."""
    tests = {name for name, _ in inspect.getmembers(Conformance, inspect.isfunction) if name.startswith("test_")}
    own = Path(__file__).read_text()
    untouched = {name for name in tests if f'("{name}"' not in own}
    assert untouched == set()
