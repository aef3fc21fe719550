"""For all tests: one thread, since several run at once and the tensors are small."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from colonnade.cli.launcher import processes as family
from tests import warm
from tests.bundled import parse_once
from tests.patience import PATIENCE

torch.set_num_threads(1)
parse_once()

# On a busy machine any example may take long: pytest's own timeout ends what hangs. More examples than these have
# found nothing more, and take half of the time of the tests that have no processes.
settings.register_profile("colonnade", deadline=None, max_examples=40)
settings.load_profile("colonnade")


_LONG = ("processes", "browser", "netns")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with processes of their own may take ten times as long on a busy machine."""
    for item in items:
        if any(map(item.get_closest_marker, _LONG)) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE + 100))


def pytest_runtest_setup() -> None:
    """The command line, run in this process, takes rights from what is made afterwards."""
    os.umask(0o022)


@pytest.fixture(scope="session", autouse=True)
def _forked_fork_servers() -> Iterator[None]:
    """A command that a test runs in this process starts a fork server, even if only to refuse what it is told."""
    with warm.replace(family):
        yield
