"""Parties that agree on keys through the server: both ends on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from colonnade.client.aggregation.key_agreement import agree
from colonnade.common.aggregation.messages import KeyOffer, KeyProof, KeyRing, agreement_limits
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import connect, run_virtual
from colonnade.common.conversation.parcels import Item
from colonnade.common.crypto.sealing import SealError, TranscriptError
from colonnade.common.crypto.signatures import ForgedError, Signer
from colonnade.common.errors import ConfigError, ContractError, PartyLost
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.raw import to_tensor
from colonnade.server.aggregation.key_agreement import introduce
from tests.support.meeting import KINDS, NAMES, SESSION, Meeting, Passes, certified_meeting

PAIRS = [(one, other) for one in NAMES for other in NAMES if one != other]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    """Three parties and a server with certificates."""
    return certified_meeting(tmp_path_factory.mktemp("agreement") / "certs")


@pytest.fixture(params=["with certificates", "without"])
def meeting(request: pytest.FixtureRequest, certified: Meeting) -> Meeting:
    return certified if request.param == "with certificates" else Meeting()


@pytest.mark.parametrize("round", [0, 4])
def test_every_party_can_seal_for_every_other(meeting: Meeting, round: int) -> None:
    keys = replace(meeting, round=round).run().keys
    for sender, receiver in PAIRS:
        box = keys[sender].seals.seal(receiver, b"hello", "model", 1)
        assert keys[receiver].seals.open(sender, box, "model", 1) == b"hello"


def test_a_third_cannot_open_it(meeting: Meeting) -> None:
    keys = meeting.run().keys
    with pytest.raises(SealError):
        keys["eve"].seals.open("ada", keys["ada"].seals.seal("bob", b"hello"))


def test_two_sessions_have_different_keys(meeting: Meeting) -> None:
    one, two = meeting.run().keys, meeting.run().keys
    with pytest.raises(SealError):
        two["bob"].seals.open("ada", one["ada"].seals.seal("bob", b"hello"))


def test_parties_can_verify_the_servers_signatures(certified: Meeting) -> None:
    outcome = certified.run()
    for keys in outcome.keys.values():
        assert keys.server is not None
        keys.server.check("this", b"said", outcome.signer.sign(b"said"))
        with pytest.raises(ForgedError, match="this is not signed by 'server'"):
            keys.server.check("this", b"said", Signer(certified.identities["bob"]).sign(b"said"))


def test_without_certificates_there_are_no_signatures() -> None:
    outcome = Meeting().run()
    assert outcome.signer.sign(b"said") == b"" and [keys.server for keys in outcome.keys.values()] == [None] * 3


# Alterations by a server that relays offers.


def ring(**changes: Callable[[KeyRing], torch.Tensor]) -> Passes:
    """Alters fields of the ring on its way."""

    def passes(item: Item) -> Item:
        if not isinstance(item, KeyRing):
            return item
        return replace(item, **{name: change(item) for name, change in changes.items()})

    return passes


def bobs_key_replaced(item: KeyRing) -> torch.Tensor:
    keys = item.keys.clone()
    keys[NAMES.index("bob")] = torch.arange(32, dtype=torch.uint8)
    return keys


def test_a_key_that_the_server_puts_in_between_is_refused_by_name(certified: Meeting) -> None:
    with pytest.raises(ForgedError, match=r"^the key of 'bob' is not signed by 'bob'"):
        replace(certified, passes={"ada": ring(keys=bobs_key_replaced)}).run()


def test_keys_in_another_order_are_refused(certified: Meeting) -> None:
    swapped = {"ada": ring(keys=lambda item: item.keys[[0, 2, 1]])}
    with pytest.raises(ForgedError, match=r"^the key of 'bob' is not signed by 'bob'"):
        replace(certified, passes=swapped).run()


def test_an_offer_of_another_session_is_refused(certified: Meeting) -> None:
    with pytest.raises(TranscriptError, match=r"^(bob|ada|eve) was told session [67], we were told session [67]$"):
        replace(certified, sessions={"bob": replace(SESSION, number=6)}).run()


def test_another_servers_certificate_is_refused(certified: Meeting) -> None:
    other = to_tensor(certified.identities["bob"].chain_pem)
    with pytest.raises(ForgedError, match=r"^'server' comes with the certificate .* of 'bob'"):
        replace(certified, passes={"ada": ring(server=lambda _item: other)}).run()


@pytest.mark.parametrize("lacking", ["bob", SERVER])
def test_a_roster_without_a_pin_is_refused(certified: Meeting, lacking: str) -> None:
    where = "federation.server" if lacking == SERVER else f"federation.parties.{lacking}"
    with pytest.raises(ConfigError, match=f"^{where}: no certificate fingerprint"):
        replace(certified, pins={**certified.pins, lacking: ""}).run()


@pytest.mark.parametrize("field", ["certificate_lengths", "signature_lengths"])
@pytest.mark.parametrize("change", [1, -1, 2**40], ids=["longer", "shorter", "far too long"])
def test_lengths_that_do_not_add_up_are_the_servers_fault(meeting: Meeting, field: str, change: int) -> None:
    passes = {"ada": ring(**{field: lambda item: getattr(item, field) + torch.tensor([0, change, 0])})}
    with pytest.raises(ContractError, match=r"^server sent KeyRing\.certificate_lengths, .* lengths that add up to"):
        replace(meeting, passes=passes).run()


def test_a_ring_of_fewer_parties_is_the_servers_fault() -> None:
    with pytest.raises(ContractError, match=r"^server sent KeyRing\.keys: expected parties = 3 in dimension 0"):
        Meeting(passes={"ada": ring(keys=lambda item: item.keys[:2])}).run()


def test_a_server_that_opens_a_round_without_keys_is_at_fault() -> None:
    async def main() -> None:
        clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
        clients["ada"].open(1)
        await agree(Meeting().client("ada"), servers["ada"])

    with pytest.raises(ContractError, match=r"^server sent KeyRing: expected everyone's keys before the first round"):
        run_virtual(main())


# Alterations by a party.


def offer(round: int = 0, size: int = 32) -> KeyOffer:
    return KeyOffer(round, *(torch.zeros(n, dtype=torch.uint8) for n in (size, 0, 0, 0)))


def proof(round: int = 0) -> KeyProof:
    return KeyProof(round, torch.zeros(len(NAMES), 64, dtype=torch.uint8))


def introduced(*sent: tuple[str, Message], later: tuple[str, Message] | None = None) -> None:
    """The server side, with these messages in transit, and one more when it is done."""

    async def main() -> None:
        clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
        for name, each in sent:
            await servers[name].send(each)
        await introduce(Meeting().server(), clients)
        if later is not None:
            await servers[later[0]].send(later[1])
            await clients[later[0]].recv(type(later[1]), later[1].round)

    run_virtual(main())


EVERYONE = tuple((name, said) for name in NAMES for said in (offer(), proof()))


async def test_links_know_that_their_session_has_keys() -> None:
    clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
    for name, each in EVERYONE:
        await servers[name].send(each)
    assert not any(link.keyed for link in clients.values())
    await introduce(Meeting().server(), clients)
    assert all(link.keyed for link in clients.values())


def test_a_party_that_offers_no_key_is_named() -> None:
    with pytest.raises(PartyLost, match=r"bob.*no KeyOffer for round 0 within 5 s"):
        introduced(("ada", offer()), ("eve", offer()))


def test_a_party_that_does_not_confirm_is_named() -> None:
    with pytest.raises(PartyLost, match=r"bob.*no KeyProof for round 0 within 5 s"):
        introduced(*(said for said in EVERYONE if said[0] != "bob" or isinstance(said[1], KeyOffer)))


def test_a_key_of_a_wrong_length_is_refused_by_name() -> None:
    with pytest.raises(
        ContractError, match=r"^bob sent KeyOffer\.key: expected key = 32 in dimension 0, got shape \(31"
    ):
        introduced(("ada", offer()), ("bob", offer(size=31)), ("eve", offer()))


@pytest.mark.parametrize("second", [offer(), proof()], ids=["offer", "proof"])
def test_a_second_message_is_refused_by_name(second: Message) -> None:
    kind = type(second).__name__
    with pytest.raises(ContractError, match=rf"^bob sent {kind}: expected one in a session, got a second$"):
        introduced(("bob", second), *EVERYONE)


@pytest.mark.parametrize("round", [0, 1])
@pytest.mark.parametrize("late", [offer, proof])
def test_a_message_after_the_agreement_is_refused_by_name(round: int, late: Callable[[int], Message]) -> None:
    expected = r"expected one of KeyProofs, KeyRing, got an undeclared kind$"
    with pytest.raises(ContractError, match=rf"^bob sent Key\w+: {expected}"):
        introduced(*EVERYONE, later=("bob", late(round)))


def test_one_offer_each_is_enough() -> None:
    """Shows that the tests above can fail."""
    introduced(*EVERYONE)
