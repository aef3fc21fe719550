"""Settings of the tests of searches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from colonnade.search import workers
from tests.support import warm


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """A search in this process that has several jobs starts workers."""
    with warm.replace(workers):
        yield
