"""The conformance suite of colonnade.testing over every built-in protocol."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.common.contracts.registry import NAMES
from colonnade.testing import Expected, conformance
from colonnade.testing.conformance import Conformance

pytestmark = pytest.mark.slow

# where rounds go on without some parties, or recover sums
CONFIRMED = ("SetProof", "SetProofs", "SealedShares", "Arrived", "OpenedShares")
KEYS = ("KeyOffer", "KeyRing", "KeyProof", "KeyProofs", "Members", "Masked", *CONFIRMED)
ENDS = ("certificate", "signature", "certificates", "signatures", "told", "all_told")  # texts, shorter without TLS
ADAPTIVE = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 0.05, delta: 1e-4, seeded: true}"
POLYNOMIAL = ("every_party.model={name: polynomial, layers: 2}", "every_party.data.scale=unit")
LINEAR = "every_party.model={name: linear, activation: none}"
RATES = ("every_party.optimiser={name: sgd, lr: 0.05, momentum: 0}", "server.optimiser={name: sgd, lr: 0.05}")
CALM = ("every_party.optimiser.lr=0.02", "server.optimiser.lr=0.02")
AGREED = ("KeyOffer", "KeyRing", "KeyProof", "KeyProofs")  # of secrets that no seed determines
MASKED = (*AGREED, *CONFIRMED, "Masked")
SEALED = ("BinCounts", "Nonces", "HintPart", "Masks", "Vectors", "ProbeDigest", "ProbeSeed", "ProbeSums", "MaskedSums",
          "OpenedSums")  # fmt: skip
SIZES = ("columns", "degree", "rows", "vectors", "bins", "lines", "part", "memory")
CODED = (*AGREED, "Preparation", "Shares", "Bundle", "SetProof", "SetProofs", "Answer")


def quick(**terms: Any) -> Expected:
    """Few epochs are enough for the expected accuracy; tests of each protocol's own train it for longer."""
    return Expected(epochs=4, **terms)


TestSplit = conformance("split", quick(), embedding=8)
TestSplitAvg = conformance("split_avg", quick(unused=(*KEYS, "Gradient")), embedding=8)
TestFedVS = conformance(
    "fedvs",
    # It does not wait for all: a late party counts as missing.
    Expected(
        epochs=6,
        free=(*ENDS, "box", "bytes", "parties"),
        fresh=CODED,
        rounding=1e-4,  # training adds up codes of whole steps
        sets=POLYNOMIAL,
        order_matters=True,
        unused=("SetProof", "SetProofs"),
    ),
    embedding=8,
)
TestFedBCD = conformance("fedbcd", quick(), embedding=8, tau=3)
TestFDML = conformance("fdml", quick(unused=(*KEYS, "Targets", "Beliefs")), embedding=8)
TestCVFL = conformance("c_vfl", quick(unused=("Targets", "Beliefs")), embedding=8, local_steps=3)
TestVAFL = conformance("vafl", quick(order_matters=True), embedding=8)
TestCZOFO = conformance("czofo", quick(sets=CALM), embedding=8, arrivals=False)
TestZOOVFL = conformance("zoo_vfl", quick(accuracy=0.3, order_matters=True, sets=(LINEAR, *RATES)), embedding=8)
TestSynZOOVFL = conformance("syn_zoo_vfl", quick(accuracy=0.3, sets=(LINEAR, *RATES)), embedding=8)
TestVFLAFE = conformance("vfl_afe", quick(sets=(ADAPTIVE,)), embedding=8)
TestVIMADMM = conformance("vimadmm", quick(), embedding=8, tau=3)
TestVIMADMMJ = conformance(
    "vimadmm_j", quick(unused=(*KEYS, "Signal"), sets=("federation.batch=256",)), embedding=8, tau=20
)
TestVFedMH = conformance(
    "vfedmh", Expected(free=ENDS, fresh=MASKED, unused=("Embedding", "Evaluation", *CONFIRMED)), embedding=8
)
TestCentralized = conformance("centralized", quick(free=("columns",), needs_all=True))
TestLinearADMM = conformance("linear_admm", quick())
TestAggVFL = conformance("agg_vfl", quick(), embedding=8)
TestCodes = conformance(
    "codes",
    Expected(
        unused=("Beliefs", "Counts", "Groups"), sets=("federation.batch=250", "federation.rows.train=1000"), epochs=1
    ),
    steps=20,
    lr=10,
)
TestAdditive = conformance(
    "additive",
    quick(
        unused=("HintPart", "ProbeDigest", "ProbeSeed", "ProbeSums", *KEYS),
        fresh=("BinCounts", "Nonces", "MaskedSums", "OpenedSums"),
        free=("columns", "degree", "rows", "vectors", "bins", "all"),
        sets=("federation.rows.train=600",),
    ),
    gradients="clear",
    aggregate="clear",
)
TestHeteroLR = conformance(
    "hetero_lr",
    quick(
        needs_all=True,
        unused=KEYS,
        fresh=SEALED,
        free=SIZES,
        sets=("federation.rows.train=600",),
        parties=3,
    ),
    aggregate="clear",
)
TestScorecard = conformance(
    "scorecard",
    quick(
        needs_all=True,
        unused=KEYS,
        fresh=SEALED,
        free=SIZES,
        parties=3,
    ),
    aggregate="clear",
    bins=4,
)
TestSecureBoost = conformance(
    "secureboost",
    quick(
        needs_all=True,
        unused=("HintPart",),
        fresh=("BinCounts", "Nonces"),
        free=("columns", "degree", "rows", "vectors", "bins", "records", "bytes", "cells"),
        sets=("federation.rows.train=600",),
        parties=3,
    ),
    gradients="clear",
    depth=2,
)
TestLocal = conformance("local", Expected(accuracy=0.4), embedding=8)


def test_every_protocol_is_here() -> None:
    suites = [value for name, value in globals().items() if name.startswith("Test")]
    assert sorted(suite.trial.name for suite in suites if issubclass(suite, Conformance)) == sorted(NAMES)
