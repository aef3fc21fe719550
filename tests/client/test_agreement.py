"""Parties that come by keys of their own through the server: both ends on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.contexts import client_context, server_context
from client.agreement import Keys, agree
from client.context import ClientContext
from common.agreement import AGREEMENT, KeyOffer, KeyRing, agreement_limits
from common.config import Config
from common.conversation import SERVER, Item
from common.crypto.federation import make_federation
from common.crypto.identity import Identity, load_identity
from common.crypto.sealing import SealError, Session
from common.crypto.signatures import ForgedError, Signer
from common.errors import ConfigError, ContractError, PartyLost
from common.inprocess import connect, run_virtual
from common.raw import to_tensor
from common.telemetry import Telemetry
from server.agreement import introduce
from server.context import ServerContext
from tests.federation import config

NAMES = ("ada", "bob", "eve")
KINDS = {kind.__name__: kind for kind in AGREEMENT}
SESSION = Session("test", "run 1", 7)
PAIRS = [(one, other) for one in NAMES for other in NAMES if one != other]

Passes = Callable[[Item], Item | None]


@dataclass
class Meeting:
    """A server and its parties that agree on keys.

    Args:
        pins: fingerprints by member; none without certificates.
        identities: by member; none without certificates.
        passes: what becomes of what the server sends to a party; None is nothing.
        round: that was restored.
        sessions: of a party that takes this for another session than the others.
    """

    pins: Mapping[str, str] = field(default_factory=dict)
    identities: Mapping[str, Identity] = field(default_factory=dict)
    passes: Mapping[str, Passes] = field(default_factory=dict)
    round: int = 0
    sessions: Mapping[str, Session] = field(default_factory=dict)

    def run(self) -> Outcome:
        """Runs both ends."""
        return run_virtual(self._main())

    async def _main(self) -> Outcome:
        clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
        for name, passes in self.passes.items():
            clients[name]._carry = _altered(clients[name]._carry, passes)
        halves = [agree(self.client(name), servers[name]) for name in NAMES]
        signer, *keys = await asyncio.gather(introduce(self.server(), clients), *halves)
        return Outcome(signer, dict(zip(NAMES, keys, strict=True)))

    def client(self, name: str) -> ClientContext:
        """A party's context."""
        ctx, session = contexts()[1][name], self.sessions.get(name, SESSION)
        federation = self._pinned(ctx.federation)
        return replace(
            ctx, federation=federation, identity=self.identities.get(name), session=session, round=self.round
        )

    def server(self) -> ServerContext:
        """The server's context."""
        ctx = contexts()[0]
        identity = self.identities.get(SERVER)
        return replace(ctx, federation=self._pinned(ctx.federation), identity=identity, round=self.round)

    def _pinned(self, federation: Any) -> Any:
        pins = {name: self.pins.get(name, "") for name in NAMES}
        return federation.model_copy(update={"parties": pins, "server": self.pins.get(SERVER, "")})


@dataclass
class Outcome:
    """What the server signs with, and every party's keys."""

    signer: Signer
    keys: dict[str, Keys]


@cache
def contexts() -> tuple[ServerContext, dict[str, ClientContext]]:
    """Of a small federation; nothing here needs their data."""
    roster, protocol = ", ".join(NAMES), {"name": "fedvs", "stragglers": 0}
    cfg: Config = config(protocol, f"federation.parties=[{roster}]", "federation.timeouts.answer=5")
    clients = {name: client_context(cfg, name, Path(), lambda value: value) for name in NAMES}
    return server_context(cfg, Path(), Telemetry()), clients


def _altered(carry: Callable[[Item], None], passes: Passes) -> Callable[[Item], None]:
    def send(item: Item) -> None:
        if (passed := passes(item)) is not None:
            carry(passed)

    return send


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    """Three parties and a server with certificates."""
    folder = tmp_path_factory.mktemp("agreement") / "certs"
    pins = make_federation(folder, NAMES)
    return Meeting(pins, {name: load_identity(folder / name) for name in (SERVER, *NAMES)})


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


def test_parties_can_check_what_the_server_signs(certified: Meeting) -> None:
    outcome = certified.run()
    for keys in outcome.keys.values():
        assert keys.server is not None
        keys.server.check("this", b"said", outcome.signer.sign(b"said"))
        with pytest.raises(ForgedError, match="this is not signed by 'server'"):
            keys.server.check("this", b"said", Signer(certified.identities["bob"]).sign(b"said"))


def test_without_certificates_nobody_signs() -> None:
    outcome = Meeting().run()
    assert outcome.signer.sign(b"said") == b"" and [keys.server for keys in outcome.keys.values()] == [None] * 3


# What a server may pass on in the place of what was said.


def ring(**changes: Callable[[KeyRing], torch.Tensor]) -> Passes:
    """Alters fields of the ring on its way."""

    def passes(item: Item) -> Item:
        assert isinstance(item, KeyRing)
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


def test_our_own_key_must_come_back() -> None:
    def ours_replaced(item: KeyRing) -> torch.Tensor:
        keys = item.keys.clone()
        keys[0, 0] ^= 1
        return keys

    with pytest.raises(SealError, match=r"^the key of 'ada' came back as another$"):
        Meeting(passes={"ada": ring(keys=ours_replaced)}).run()


def test_an_offer_of_another_session_is_refused(certified: Meeting) -> None:
    with pytest.raises(ForgedError, match=r"is not signed by '(bob|ada)', or was for another session"):
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


# What a party may do.


def offer(round: int = 0, size: int = 32) -> KeyOffer:
    return KeyOffer(round, *(torch.zeros(n, dtype=torch.uint8) for n in (size, 0, 0)))


def introduced(*sent: tuple[str, KeyOffer], later: tuple[str, KeyOffer] | None = None) -> None:
    """The server's half with these offers on their way, and one more when it is done."""

    async def main() -> None:
        clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
        for name, each in sent:
            await servers[name].send(each)
        await introduce(Meeting().server(), clients)
        if later is not None:
            await servers[later[0]].send(later[1])
            await clients[later[0]].recv(KeyOffer, later[1].round)

    run_virtual(main())


EVERYONE = tuple((name, offer()) for name in NAMES)


def test_links_know_that_their_session_has_keys() -> None:
    async def main() -> None:
        clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
        for name, each in EVERYONE:
            await servers[name].send(each)
        assert not any(link.keyed for link in clients.values())
        await introduce(Meeting().server(), clients)
        assert all(link.keyed for link in clients.values())

    run_virtual(main())


def test_who_offers_no_key_is_named() -> None:
    with pytest.raises(PartyLost, match=r"bob.*no KeyOffer for round 0 within 5 s"):
        introduced(EVERYONE[0], EVERYONE[2])


def test_a_key_of_a_wrong_length_is_refused_by_name() -> None:
    with pytest.raises(
        ContractError, match=r"^bob sent KeyOffer\.key: expected key = 32 in dimension 0, got shape \(31"
    ):
        introduced(EVERYONE[0], ("bob", offer(size=31)), EVERYONE[2])


def test_a_second_offer_is_refused_by_name() -> None:
    with pytest.raises(ContractError, match=r"^bob sent KeyOffer: expected one in a session, got a second$"):
        introduced(EVERYONE[1], *EVERYONE)


@pytest.mark.parametrize("round", [0, 1])
def test_an_offer_after_the_agreement_is_refused_by_name(round: int) -> None:
    with pytest.raises(ContractError, match=r"^bob sent KeyOffer: expected one of KeyRing, got an undeclared kind$"):
        introduced(*EVERYONE, later=("bob", offer(round)))


def test_one_offer_each_is_enough() -> None:
    """Else the tests above could not fail."""
    introduced(*EVERYONE)
