"""The conformance suite over this protocol."""

from colonnade.testing import conformance

TestSigns = conformance("signs", embedding=16)
