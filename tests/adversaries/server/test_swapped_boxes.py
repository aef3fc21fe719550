"""A server that delivers sealed boxes of FedVS to another party, in another round, or as another sender's.

Bounds: FedVS's shares (server).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.parcels import Item
from colonnade.common.protocols.fedvs import Answer, Bundle, Opened
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome, config, federate

SETS = ("federation.rounds=4", "federation.epochs=0", "federation.evaluate.every=99", "federation.transcript.every=2")
NAMES = ("party1", "party2", "party3", "party4")
VICTIM = "party3"
QUORUM = "federation.quorum={need: 3, grace: 5}"

Swap = Callable[[Bundle, dict[tuple[str, int], Bundle]], Bundle]
"""Makes the victim's bundle of round 3 of its own and those of others and of earlier rounds."""


def boxes(bundle: Bundle) -> list[torch.Tensor]:
    return list(torch.split(bundle.boxes, bundle.lengths.tolist()))


def laid_out(bundle: Bundle, parts: list[torch.Tensor]) -> Bundle:
    return replace(bundle, boxes=torch.cat(parts), lengths=torch.tensor([len(part) for part in parts]))


def of_another_receiver(own: Bundle, seen: dict[tuple[str, int], Bundle]) -> Bundle:
    """What party1 and party4 sealed for party2, and nothing of party2."""
    theirs, parts = boxes(seen["party2", 3]), boxes(own)
    return laid_out(own, [theirs[0], parts[1], parts[2], theirs[3]])


def of_the_round_before(own: Bundle, seen: dict[tuple[str, int], Bundle]) -> Bundle:
    return laid_out(own, boxes(seen[VICTIM, 2]))


def of_two_senders(own: Bundle, _seen: dict[tuple[str, int], Bundle]) -> Bundle:
    parts = boxes(own)
    return laid_out(own, [parts[1], parts[0], *parts[2:]])


@cache
def delivered(swap: Swap | None, *sets: str) -> Outcome:
    seen: dict[tuple[str, int], Bundle] = {}

    def alter(cohort: Cohort) -> None:
        for name, link in cohort.items():
            change_each(link, partial(lie, name))

    def lie(name: str, item: Item) -> Item:
        if isinstance(item, Bundle) and item.stage == 0:
            seen[name, item.round] = item
            if swap is not None and name == VICTIM and item.round == 3:
                item = swap(item, seen)
        return item

    return federate(config({"name": "fedvs", "embedding": 4, "segments": 1}, *SETS, *sets), on_cohort=alter)


SWAPS = {of_another_receiver: {0, 3}, of_the_round_before: {0, 1, 3}, of_two_senders: {0, 1}}
"""Places of the senders whose boxes the victim cannot open then."""


@pytest.mark.parametrize(("swap", "lost"), SWAPS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_no_box_is_opened_and_the_server_is_named(swap: Swap, lost: set[int]) -> None:
    outcome = delivered(swap, QUORUM)
    (opened,) = [
        m for by, _, m in outcome.messages if isinstance(m, Opened) and by == VICTIM and m.round == 3 and not m.stage
    ]
    assert [place for place, came in enumerate(opened.senders.tolist()) if not came] == sorted(lost)
    warned = [e["reason"] for e in outcome.of_kind("warning") if e["party"] == VICTIM and "round 3: " in e["reason"]]
    assert len(warned) == len(lost) and all(
        NAMES[place] in text for place, text in zip(sorted(lost), warned, strict=True)
    )
    found = {finding["party"]: finding for finding in outcome.of_kind("finding")}
    assert found.keys() == {NAMES[place] for place in lost}
    for name, finding in found.items():
        expected = (
            f"the server did not pass on to {VICTIM}, or altered, the box that {name} sent it in round 3 (stage 0)"
        )
        assert finding["reason"].startswith(expected) and not finding["ends"]


@pytest.mark.parametrize("sets", [(QUORUM,), ()], ids=["three are enough", "all are waited for"])
@pytest.mark.parametrize("swap", SWAPS, ids=lambda one: one.__name__)
def test_the_round_has_no_sum(swap: Swap, sets: tuple[str, ...]) -> None:
    """The senders whose boxes did not arrive are left out for all, and fewer than three are left."""
    outcome = delivered(swap, *sets)
    assert [event["round"] for event in outcome.of_kind("skipped")] == [3]
    assert {m.round for _, _, m in outcome.messages if isinstance(m, Answer) and len(m.h)} == {1, 2, 4}


def test_a_server_that_swaps_nothing_is_accused_of_nothing() -> None:
    outcome = delivered(None, QUORUM)
    assert not outcome.of_kind("finding") and not outcome.of_kind("skipped")
