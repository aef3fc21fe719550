"""A server that keeps back, or swaps, one sealed box of which no receipt is written: shares of data in FedVS, the salt
of a transcript, a list in an alignment with proofs. Nobody goes on without the box, and an error names the pair.

Bounds: alignment (server); FedVS's shares (server); transcripts (server).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from colonnade.common.aggregation.messages import RECOVERY, Arrived
from colonnade.common.alignment.messages import Pledge, Proved
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Item, Statement
from colonnade.common.crypto.sealing import SealError, TranscriptError
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import ServerMessage
from colonnade.common.protocols.fedvs import Bundle
from tests.adversaries.server.test_split_views import VICTIM, told
from tests.support.alignment import Found, align, federation

SLOW = "federation.quorum={need: 3, grace: 5}"


# Shares of data, once in a run of FedVS.


def without(bundle: Bundle) -> Bundle:
    lengths = bundle.lengths.clone()
    boxes, lengths[0] = bundle.boxes[int(lengths[0]) :], 0
    return replace(bundle, boxes=boxes, lengths=lengths)


def altered(bundle: Bundle) -> Bundle:
    boxes = bundle.boxes.clone()
    boxes[20] ^= 1
    return replace(bundle, boxes=boxes)


@pytest.mark.parametrize("change", [without, altered])
def test_without_a_share_of_data_the_run_ends_and_server_and_sender_are_named(
    change: Callable[[Bundle], Bundle],
) -> None:
    def lie(item: Item) -> Iterator[Item]:
        yield change(item) if isinstance(item, Bundle) and item.round == 0 else item

    with pytest.raises(ContractError, match=r"server sent Bundle\.boxes: .* data shares, got none of party1$"):
        told(lie, "sealed", SLOW)


# The salt, which the first party seals in its second statement.


def salts(change: Callable[[dict[str, str]], dict[str, str] | None]) -> Callable[[Item], Iterator[Item]]:
    """Alters the boxes of the statement with the salt; None keeps it back."""

    def lie(item: Item) -> Iterator[Item]:
        if isinstance(item, Statement) and item.party == "party1" and (salt := json.loads(item.body)["salt"]):
            if (boxes := change(salt)) is None:
                return
            item = replace(item, body=json.dumps(json.loads(item.body) | {"salt": boxes}).encode())
        yield item

    return lie


WITHOUT_SALT = {
    "kept back": (lambda _boxes: None, "has not relayed party1's statement number 1, and has relayed number 2"),
    "left out": (
        lambda _boxes: {"party3": "00"},
        "has relayed as a statement of party1 one that has the salt for",
    ),
    "of another": (
        lambda boxes: {VICTIM: boxes["party3"]},
        "has relayed as a statement of party1 one whose salt",
    ),
}


@pytest.mark.parametrize("sets", [(), (SLOW,), (SLOW, "federation.blinding.recovery=alone")], ids=len)
@pytest.mark.parametrize("fault", WITHOUT_SALT)
def test_without_the_salt_the_run_ends_and_the_server_is_named(fault: str, sets: tuple[str, ...]) -> None:
    """Unsigned, as on loopback; with certificates, the signature covers the boxes of all receivers."""
    change, text = WITHOUT_SALT[fault]
    with pytest.raises(TranscriptError, match=f"the server {text}"):
        told(salts(change), "blinded", *sets)


def test_a_party_without_the_salt_and_all_later_statements_says_so_and_is_missed() -> None:
    """Where parties may be slow, these are warnings: no other party's hashes can be compared with the victim's."""

    def lie(item: Item) -> Iterator[Item]:
        if not (isinstance(item, Statement) and item.party == "party1" and json.loads(item.body)["number"]):
            yield item

    found = {(finding["party"], finding["other"]) for finding in told(lie, "blinded", SLOW).of_kind("finding")}
    assert (VICTIM, "party1") in found and ("party1", VICTIM) in found


# Lists of an alignment with proofs.

MEMBERS, ROWS, BLOCK = (SERVER, "party1", "party2", "party3"), 12, 5
BLOCKS = 3


def ended(change: Callable[[Proved, list[Proved]], Proved | None], block: int = 0) -> Found:
    """An alignment in which the server alters a box that party1 seals for party2."""
    pytest.importorskip("coincurve")
    sealed: list[Proved] = []

    def lie(sender: str, item: Any) -> Any:
        if sender == "party1" and isinstance(item, Proved) and len(item.box):
            sealed.append(item)
            if len(sealed) == block + 1:
                return change(item, sealed)
        return item

    agreed = federation(3, align_checks="proofs", keys={"seeded": True})
    return align(agreed, {name: [f"person {n}" for n in range(ROWS)] for name in MEMBERS}, block=BLOCK, change=lie)


def emptied(item: Proved, _sealed: list[Proved]) -> Proved:
    return replace(item, box=torch.empty(0, dtype=torch.uint8))


def changed(item: Proved, _sealed: list[Proved]) -> Proved:
    box = item.box.clone()
    box[-1] ^= 1
    return replace(item, box=box)


def of_the_block_before(item: Proved, sealed: list[Proved]) -> Proved:
    return replace(item, box=sealed[-2].box)


@pytest.mark.parametrize(("change", "block"), [(emptied, 0), (changed, 0), (of_the_block_before, 1)])
def test_without_a_sealed_list_the_alignment_ends_and_the_pair_is_named(change: Any, block: int) -> None:
    """The receiver's pledge of the next list, which all members see, is its receipt: it makes none then."""
    found = ended(change, block)
    refused = found.rows["party2"]
    assert isinstance(refused, SealError) and refused.hint == "check the path between the two, the server first"
    assert str(refused).startswith(f"what 'party1' sealed for 'party2' (list of an alignment 0 {block}) cannot be")
    assert all(isinstance(rows, Exception) for rows in found.rows.values()) and not found.kept
    assert pledges(found) == BLOCKS


def pledges(found: Found) -> int:
    """Of the receiver: one a block of its own list, and one of each list that it passes on."""
    return sum(sender == "party2" and isinstance(item, Pledge) for sender, _to, item in found.messages)


def test_with_all_sealed_lists_every_one_is_pledged() -> None:
    found = ended(lambda item, _sealed: item)
    assert all(isinstance(rows, torch.Tensor) and len(rows) == ROWS for rows in found.rows.values())
    assert pledges(found) == BLOCKS + len(MEMBERS) - 1


# Shares of the keys of a round.


def test_shares_of_keys_pass_through_the_server_to_nobody() -> None:
    """They are stored with it; a receipt would have no receiver."""
    assert [kind for kind in RECOVERY if issubclass(kind, ServerMessage)] == [Arrived]
