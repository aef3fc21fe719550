"""Tests for protocols, also for those of other packages: three lines of a test file run a conformance suite.

    from colonnade.testing import conformance

    TestSigns = conformance("signs", embedding=16)

See docs/adding_a_protocol.md. This package imports pytest; no other part of Colonnade does.
"""

from __future__ import annotations

from colonnade.testing.conformance import conformance
from colonnade.testing.trial import Expected, Trial, digits

__all__ = ["Expected", "Trial", "conformance", "digits"]
