"""Settings of the laboratory's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from colonnade_lab.attacks import network


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """A third of the epochs of an attacker's network, and half of its width, suffice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "EPOCHS", 100)
        patch.setattr(network, "HIDDEN", 128)
        yield
