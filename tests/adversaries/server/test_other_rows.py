"""A server that asks one party of a blinded prediction for other rows than the rest: two sums would show its part.

Bounds: predictions (server).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.client.protocols import LOCAL
from colonnade.common.aggregation.messages import Masked
from colonnade.common.contracts.prediction import Ask
from colonnade.common.conversation.conversation import Cohort, Link
from colonnade.common.errors import ColonnadeError
from colonnade.common.privacy.sum_noise import ring
from colonnade.server.aggregation.masked_sums import Blinded, Found
from tests.protocols.test_prediction import ask
from tests.support.altered_lines import change_each, replace_each
from tests.support.federation import config, federate

PROTOCOLS: dict[str, dict[str, Any]] = {
    "vfedmh": {"name": "vfedmh", "embedding": 8},
    "fedvs": {"name": "fedvs", "embedding": 8},
    "split_avg": {"name": "split_avg", "embedding": 8, "aggregate": "blinded"},
    "fdml": {"name": "fdml", "embedding": 8, "aggregate": "blinded"},
    "vimadmm_j": {"name": "vimadmm_j", "embedding": 8, "aggregate": "blinded", "update": "signal"},
}
VICTIM = "party2"
ROWS, OTHERS = torch.arange(20, 60), torch.arange(100, 140)

Alter = Callable[[Ask], Iterator[Ask]]


@cache
def trained(protocol: str) -> tuple[Any, Any]:
    cfg = config(PROTOCOLS[protocol], "federation.rounds=2", "federation.epochs=0")
    return cfg, federate(cfg)


class Sums:
    """The words that the server receives, and what it makes of them."""

    def __init__(self, cfg: Any, alter: Alter) -> None:
        self.ring, self.alter, self.words = ring(cfg.federation), alter, dict[int, list[Tensor]]()

    def listen(self, cohort: Cohort, links: dict[str, Link]) -> None:
        for name, link in links.items():
            change_each(link, self._heard)
            if name == VICTIM:
                replace_each(cohort[name], lambda item: self.alter(item) if isinstance(item, Ask) else (item,))

    def of(self, round: int, rows: int) -> Tensor:
        """The sum of a round, decoded: (rows, width)."""
        words = [one.view(self.ring.dtype) for one in self.words[round]]
        assert len(words) == 4
        return self.ring.decode(self.ring.total(torch.stack(words)))[:rows]

    def _heard(self, item: Any) -> Any:
        if isinstance(item, Masked):
            self.words.setdefault(item.round, []).append(item.words.clone())
        return item


def parts(cfg: Any, outcome: Any, rows: Tensor, party: str = VICTIM) -> Tensor:
    """A party's own outputs of some rows, (rows, width)."""
    ctx = outcome.clients[party]
    local = LOCAL[cfg.federation.protocol.name](ctx, cfg.federation.protocol)
    local.eval()
    with torch.no_grad():
        return local(ctx.features[rows]).double()  # type: ignore[no-any-return]


def last(change: Callable[[Ask], Ask]) -> Alter:
    """The victim is told something else in the second round."""

    def alter(item: Ask) -> Iterator[Ask]:
        yield change(item) if len(seen) else item
        seen.append(item)

    seen: list[Ask] = []
    return alter


def with_rows(rows: Tensor) -> Callable[[Ask], Ask]:
    return lambda item: replace(item, rows=rows)


def one_other(item: Ask) -> Ask:
    rows = item.rows.clone()
    rows[-1] = 777
    return replace(item, rows=rows)


CHANGES: dict[str, Callable[[Ask], Ask]] = {
    "all rows": with_rows(OTHERS),
    "one row": one_other,
    "another order": lambda item: replace(item, rows=item.rows.flip(0)),
    "two rows exchanged": lambda item: replace(item, rows=torch.cat([item.rows[1:2], item.rows[:1], item.rows[2:]])),
}


def lie(protocol: str, alter: Alter, *questions: Tensor) -> tuple[Sums, Exception | None]:
    cfg, outcome = trained(protocol)
    sums, error = Sums(cfg, alter), None
    try:
        ask(cfg, outcome, *questions, spoil=sums.listen)
    except ColonnadeError as ended:
        error = ended
    return sums, error


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("change", CHANGES)
def test_two_sums_do_not_show_the_part_of_a_party_that_is_asked_for_other_rows(protocol: str, change: str) -> None:
    cfg, outcome = trained(protocol)
    sums, error = lie(protocol, last(CHANGES[change]), ROWS, ROWS)
    told = CHANGES[change](Ask(2, False, ROWS)).rows
    wanted = parts(cfg, outcome, told) - parts(cfg, outcome, ROWS)
    first, second = sorted(sums.words)
    seen = sums.of(second, len(ROWS)) - sums.of(first, len(ROWS))
    away = (seen - wanted).abs()[(told != ROWS)]
    assert away.median() > 0.1, f"off by at most {float(away.max()):.2g}"
    assert error is not None


@pytest.mark.parametrize("protocol", ["vfedmh", "fedvs"])
def test_honest_sums_are_exact(protocol: str) -> None:
    """Shows that the other tests can fail."""
    cfg, outcome = trained(protocol)
    sums, error = lie(protocol, lambda item: iter([item]), ROWS, OTHERS)
    assert error is None
    total = torch.zeros(len(ROWS), 8).double()
    for name in cfg.federation.names:
        total += parts(cfg, outcome, ROWS, name)
    torch.testing.assert_close(sums.of(min(sums.words), len(ROWS)), total, atol=1e-5, rtol=0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_a_request_that_differs_no_sum_of_the_session_is_one(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not mind, and asks all parties for the same again."""
    decoded = lambda self, total, responses, *_more: Found(self._ring.decode(total[:-1]).float(), responses)  # noqa: E731
    monkeypatch.setattr(Blinded, "finding", decoded)
    seen: list[Ask] = []

    def once(item: Ask) -> Iterator[Ask]:
        seen.append(item)
        yield replace(item, rows=item.rows + 1) if len(seen) == 2 else item

    sums, error = lie(protocol, once, ROWS, ROWS, ROWS, OTHERS, ROWS)
    assert error is None
    first, *rest = sorted(sums.words)
    for round in rest[:2] + rest[3:]:
        assert (sums.of(round, len(ROWS)) - sums.of(first, len(ROWS))).abs().median() > 0.1


REFUSED: dict[str, Callable[[Ask], Iterator[Ask]]] = {
    "a subset": lambda item: iter([replace(item, rows=item.rows[:-1])]),
    "one row": lambda item: iter([replace(item, rows=item.rows[:1])]),
    "a row twice": lambda item: iter([replace(item, rows=item.rows[:1].repeat(2))]),
    "own": lambda item: iter([replace(item, own=True)]),
}


@pytest.mark.parametrize("protocol", ["vfedmh", "fedvs"])
@pytest.mark.parametrize("change", REFUSED)
def test_fewer_rows_repeated_ones_or_another_option_give_no_sum(protocol: str, change: str) -> None:
    _, error = lie(protocol, REFUSED[change], ROWS)
    assert error is not None


def test_a_replay_of_an_old_request_gives_no_sum() -> None:
    """The victim is sent its first request again in the third round, under the new number."""
    seen: list[Ask] = []

    def alter(item: Ask) -> Iterator[Ask]:
        seen.append(item)
        yield replace(seen[0], round=item.round) if len(seen) == 3 else item

    sums, error = lie("vfedmh", alter, ROWS, OTHERS, OTHERS)
    assert error is not None and "masks that cancel" in str(error)
    _, second, third = sorted(sums.words)
    assert (sums.of(third, len(ROWS)) - sums.of(second, len(ROWS))).abs().median() > 0.1


def test_the_same_request_again_has_masks_of_its_own() -> None:
    sums, error = lie("vfedmh", lambda item: iter([item]), ROWS, ROWS)
    assert error is None
    one, two = (torch.stack(sums.words[round]) for round in sorted(sums.words))
    assert (one == two).double().mean() < 0.001
