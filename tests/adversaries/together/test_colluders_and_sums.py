"""A server and m of four parties, which tell it all their keys, values and noise, take a blinded sum apart.

Bounds: blinded sums (both); noise once (both); predictions (both).
"""

from __future__ import annotations

import hmac
import json
import math
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

from colonnade.common.aggregation.masks import Blinder
from colonnade.common.aggregation.messages import Masked
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.privacy.sum_noise import NoiseShare, ring
from tests.protocols.test_prediction import ask
from tests.support.federation import Outcome, config, federate

PARTIES = ("party1", "party2", "party3", "party4")
PROTOCOL = {"name": "split_avg", "embedding": 16, "aggregate": "blinded"}
SHORT = ("federation.rounds=1", "federation.epochs=0", "federation.batch=400", "federation.evaluate.every=99")
ONCE = "federation.privacy={clip: 0.5, noise_multiplier: 2, once: {colluders: 1}}"
PROMISED = 2 * 0.5  # deviation of the noise in a sum


@dataclass
class Known:
    """What colluders can tell the server: keys of every pair, values before and after noise."""

    keys: dict[str, dict[str, bytes]] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)  # of the newest round
    about: dict[int, bytes] = field(default_factory=dict)  # what a round sums, by which masks are derived
    clean: list[Tensor] = field(default_factory=list)
    noisy: list[Tensor] = field(default_factory=list)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    seen = Known()
    make, blind, share = Blinder.__init__, Blinder.blind, NoiseShare.__call__

    def made(self: Blinder, name: str, roster: Any, keys: Any, *, least: int) -> None:
        seen.keys[name] = dict(keys)
        make(self, name, roster, keys, least=least)

    def blinded(self: Blinder, words: Tensor, round: int, stage: int, parties: Any, about: bytes, *more: Any) -> Any:
        if stage == 0:
            seen.values[self._name], seen.about[round] = words.clone(), about
        return blind(self, words, round, stage, parties, about, *more)

    def shared(self: NoiseShare, bounded: Tensor) -> Tensor:
        seen.clean.append(bounded.double().clone())
        seen.noisy.append(share(self, bounded))
        return seen.noisy[-1]

    monkeypatch.setattr(Blinder, "__init__", made)
    monkeypatch.setattr(Blinder, "blind", blinded)
    monkeypatch.setattr(NoiseShare, "__call__", shared)
    return seen


def words_of(outcome: Outcome) -> dict[str, Tensor]:
    """What the server received of the training round, modulo 2^32."""
    return {by: m.words.long() % 2**32 for by, _, m in outcome.messages if isinstance(m, Masked) and m.stage == 0}


def opened(words: dict[str, Tensor], known: Known, colluders: tuple[str, ...], round: int = 1) -> dict[str, Tensor]:
    """The honest parties' words without the masks that a colluder knows: HMAC-SHA256 and ChaCha20, by hand."""
    left = {}
    for name, blinded in words.items():
        if name in colluders:
            continue
        left[name] = blinded.clone()
        context = sha256(json.dumps([round, 0, PARTIES, blinded.shape, 32, known.about[round].hex()]).encode()).digest()
        for other in colluders:
            key = hmac.digest(known.keys[other][name], context, "sha256")
            stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4 * blinded.numel()))
            mask = torch.from_numpy(np.frombuffer(stream, "<u4").astype(np.int64)).reshape(blinded.shape)
            left[name] = (
                left[name] - mask if PARTIES.index(name) < PARTIES.index(other) else left[name] + mask
            ) % 2**32
    return left


def signed(words: Tensor) -> Tensor:
    return torch.where(words < 2**31, words, words - 2**32)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_they_learn_the_sum_of_the_others_and_no_part_of_it_unless_one_is_left(known: Known, count: int) -> None:
    outcome = federate(config(PROTOCOL, *SHORT))
    refuse_parts(known, opened(words_of(outcome), known, PARTIES[-count:]))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_a_prediction_they_learn_the_same(known: Known, count: int) -> None:
    """The sum of the others' outputs, which is the last one's if all others collude."""
    cfg = config(PROTOCOL, *SHORT)
    outcome, said = federate(cfg), dict[str, Masked]()

    def listen(cohort: Cohort, _links: object) -> None:
        for name, link in cohort.items():
            deliver = link.deliver

            def both(item: Any, name: str = name, deliver: Any = deliver) -> None:
                if isinstance(item, Masked):
                    said[name] = item
                deliver(item)

            link.deliver = both  # type: ignore[method-assign]

    ask(cfg, outcome, torch.arange(400), spoil=listen)
    words = {name: m.words.long() % 2**32 for name, m in said.items()}
    left = opened(words, known, PARTIES[-count:], said["party1"].round)
    refuse_parts(known, left)


def refuse_parts(known: Known, left: dict[str, Tensor]) -> None:
    """The rest, of the honest parties' words, must sum up to theirs, and say nothing of one unless it is alone."""
    honest = {name: known.values[name].long() for name in left}
    assert torch.equal(signed(sum(left.values()) % 2**32), sum(honest.values()))  # type: ignore[union-attr]
    for name, words in left.items():
        if len(left) == 1:
            assert torch.equal(signed(words), honest[name])
            continue
        high = torch.bincount(words.flatten() >> 28, minlength=16)  # uniform: chi squared of 15 degrees of freedom
        expected = words.numel() / 16
        assert float(((high - expected) ** 2).sum() / expected) < 45
        both = torch.stack([signed(words).double().flatten(), honest[name].double().flatten()])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 5 / math.sqrt(words.numel())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_noise_once_is_what_was_promised_up_to_the_agreed_colluders_and_less_by_the_root_beyond(
    known: Known, count: int
) -> None:
    """One colluder was agreed on: three shares carry the promised noise, and h of them sqrt(h / 3) of it."""
    outcome = federate(config(PROTOCOL, *SHORT, ONCE))
    scale = ring(outcome.server.federation, outcome.server.schedule.privacy).scale
    total = signed(sum(words_of(outcome).values()) % 2**32)[:-1].double() / scale  # type: ignore[union-attr]
    mine = sum(known.values[name][:-1].double() / scale for name in PARTIES[:count])
    exact = total - mine - sum(known.clean[count : len(PARTIES)])
    honest = len(PARTIES) - count
    expected = PROMISED * math.sqrt(honest / 3)
    assert abs(float(exact.std()) / expected - 1) < 5 / math.sqrt(2 * exact.numel())
    assert (expected >= PROMISED) == (count <= 1)
