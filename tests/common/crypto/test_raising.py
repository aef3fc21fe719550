"""Exponentiations on several processors give what one gives."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from colonnade.common.crypto.group import Secret, hash_to_curve
from colonnade.common.crypto.raising import Raising
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.run.device import torch_threads
from colonnade.server.alignment.rows import server_keeping
from tests.support.federation import tree

KEYS = [b"key %d" % number for number in range(600)]


@pytest.fixture
def two() -> Raising:
    return Raising(2)


@pytest.mark.processes
def test_two_processors_give_what_one_gives(two: Raising) -> None:
    secret, alone = Secret(os.urandom(32)), Raising()
    own = alone.keys(secret, KEYS, b"tag")
    assert two.keys(secret, KEYS, b"tag") == own == secret.raise_all(hash_to_curve(KEYS, b"tag"))
    assert two.elements(secret, own) == alone.elements(secret, own)
    assert len(two.workers) == 2
    two.close()
    assert not two.workers
    assert two.keys(secret, KEYS[:10], b"tag") == own[:320] and not two.workers  # short lists are not worth a process


@pytest.mark.processes
def test_no_secret_is_on_a_command_line_or_in_an_environment(two: Raising) -> None:
    secret = Secret(os.urandom(32))
    two.keys(secret, KEYS, b"tag")
    for worker in two.workers:
        for place in ("cmdline", "environ"):
            content = Path(f"/proc/{worker.pid}/{place}").read_bytes()
            assert secret.scalar not in content and secret.scalar.hex().encode() not in content
    two.close()


@pytest.mark.processes
def test_an_element_of_small_order_is_refused_by_every_processor(two: Raising) -> None:
    secret = Secret(os.urandom(32))
    elements = secret.raise_all(hash_to_curve(KEYS, b"tag"))
    with pytest.raises(InputError, match="small order"):
        two.elements(secret, elements + bytes(32))
    assert two.elements(secret, elements) == secret.raise_all(elements)  # the next list is raised again
    two.close()


@pytest.mark.processes
def test_a_processor_that_has_died_is_reported(two: Raising) -> None:
    secret = Secret(os.urandom(32))
    two.keys(secret, KEYS, b"tag")
    two.workers[1].kill()
    two.workers[1].wait()
    with pytest.raises(EnvironmentFault, match="a process that raises keys has ended"):
        two.keys(secret, KEYS, b"tag")
    assert not two.workers


@pytest.mark.processes
@pytest.mark.parametrize("threads", [0, 1])
def test_the_server_raises_on_all_processors_unless_its_section_says_how_many(tmp_path: Path, threads: int) -> None:
    made = parse(tree({"name": "split"}, align="psi"))
    assert made.server is not None
    config, own = made.server.model_copy(update={"threads": threads}), psutil.Process()
    secret, before = os.urandom(32), len(own.children())
    with torch_threads(1):  # as `up` starts it
        keeping = server_keeping(made.federation, config, tmp_path, tmp_path, Telemetry(), secure=True)
    raised = Secret(secret).raise_all(hash_to_curve(KEYS, b"tag"))
    assert keeping.fresh(secret).take_back(Secret(secret).raise_all(raised)) == raised
    processors = threads or len(os.sched_getaffinity(0))
    assert len(own.children()) - before == (processors if processors > 1 else 0)
    keeping.close()
