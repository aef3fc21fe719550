"""Joining over real mutual TLS on loopback: admission by the server, and trust of a party."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from colonnade.client.dialling.membership import Membership
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.parcels import Hello
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.pki.names import dns_name
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import ContractError, DataError, EnvironmentFault, PartyFailed, PartyLost, RefusedError
from colonnade.common.messaging.message import largest_bytes
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.split import CONTRACT, Embedding, Gradient
from colonnade.common.version import VERSION
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE, METHOD
from colonnade.server.member.admission import Admission, DataShape
from colonnade.server.member.hub import Hub
from colonnade.server.member.listen import Listener, ServerTls

pytestmark = pytest.mark.real_time

CODEC = Codec(CONTRACT.kinds)
LIMITS = {"rows": 8, "width": 60}
LARGEST = largest_bytes(Embedding, LIMITS) + FRAME_ALLOWANCE


@dataclass(frozen=True)
class Certificates:
    """Three federations with the same names: ours, another authority's, and renewed ones by another."""

    folder: Path

    def of(self, name: str, folder: str = "ours") -> Identity:
        return load_identity(self.folder / folder / name)

    @property
    def agreed(self) -> FederationConfig:
        roster = {name: self.of(name).fingerprint for name in ("ada", "bob")}
        fixed = {"id": "test", "protocol": "split", "classes": 2, "rounds": 3, "batch": 8}
        return parse({"federation": {**fixed, "parties": roster, "server": self.of(SERVER).fingerprint}}).federation


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("joining")
    for name in ("ours", "theirs"):
        make_federation(folder / name, ["ada", "bob"])
    return Certificates(folder)


@dataclass
class Place:
    """A listening hub, and parties that dial it."""

    certificates: Certificates
    hub: Hub
    revoked: RevocationList
    port: int
    events: Path
    memberships: list[Membership]

    async def join(
        self,
        party: str,
        identity: Identity | None = None,
        *,
        pin: str | None = None,
        patience: float = 20,
        **wrong: Any,
    ) -> Membership:
        agreed = self.certificates.agreed
        said = {"config": agreed.stated(), "rows": 100, **wrong}
        membership = Membership(CODEC, LARGEST, Telemetry(None))
        self.memberships.append(membership)
        pin = agreed.server if pin is None else pin
        first = Hello(party, "test", VERSION, **said)
        await membership.join(first, lambda: f"127.0.0.1:{self.port}", identity, pin, patience)
        return membership

    async def join_all(self) -> list[tuple[Membership, Link]]:
        joining = [asyncio.create_task(self.join(name, self.certificates.of(name))) for name in ("ada", "bob")]

        async def between(_round: int) -> None:
            await self.hub.gate()

        await self.hub.assemble(20)
        self.cohort, _ = self.hub.begin([], 0, between)
        memberships = [await one for one in joining]
        for one in memberships:
            begin = await one.begin()
            assert begin is not None and begin.session == self.hub.session
        return [(one, Link(SERVER, CONTRACT.kinds, LIMITS, one.post)) for one in memberships]

    def refused(self) -> list[tuple[str, str]]:
        events = [json.loads(line) for line in self.events.read_text().splitlines()] if self.events.exists() else []
        return [(event["party"], event["reason"]) for event in events if event["kind"] == "refused"]


@asynccontextmanager
async def place(certificates: Certificates, folder: Path, *, secure: bool = True) -> AsyncIterator[Place]:
    server = certificates.of(SERVER)
    tls = ServerTls(server.key_pem, server.chain_pem, server.ca_pem) if secure else None
    RevocationList.create(folder / "revoked.json")
    revoked, telemetry = RevocationList(folder / "revoked.json"), Telemetry(folder / "events.jsonl")
    admission = Admission(certificates.agreed, DataShape(100, 0), "a-run", revoked, secure=secure)
    hub = Hub(certificates.agreed, CONTRACT, admission, "a-run", telemetry)
    listener = Listener(CODEC, LARGEST, hub.greet)
    port = await listener.start("127.0.0.1:0", tls)
    there = Place(certificates, hub, revoked, port, folder / "events.jsonl", [])
    try:
        yield there
    finally:
        await hub.part(0)
        for membership in there.memberships:
            await membership.leave()
        await listener.stop()


async def test_parties_join_exchange_and_part(certificates: Certificates, tmp_path: Path) -> None:
    async def side(link: Link) -> None:
        async for round in link.rounds():
            await link.send(Embedding(round, torch.full((2, 60), float(round))))
            answer = await link.recv(Gradient, round)
            assert answer is not None and answer.dh.sum() == 120 * round

    async with place(certificates, tmp_path) as there:
        joined = await there.join_all()
        parties = [asyncio.create_task(one.attend(link.deliver, partial(side, link))) for one, link in joined]
        async for round in there.cohort.rounds(3):
            answers = await there.cohort.collect(Embedding, round, Quorum(limit=20), rows=2, width=60)
            await there.cohort.broadcast({name: Gradient(round, answers[name].h) for name in answers})
        await there.hub.part(20)
        await asyncio.gather(*parties)
        assert there.refused() == []


async def test_a_party_that_joins_after_the_work_is_sent_the_end_and_parts_normally(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with place(certificates, tmp_path) as there:
        ada = await there.join("ada", certificates.of("ada"))
        beginning = asyncio.create_task(ada.begin())
        await there.hub.part(20)
        assert await beginning is None and there.refused() == []


async def test_unusable_input_is_logged_without_its_content(certificates: Certificates, tmp_path: Path) -> None:
    async with place(certificates, tmp_path) as there:
        ada = await there.join("ada", certificates.of("ada"))
        with pytest.raises(DataError, match="Ulm"), ada.telling():
            raise DataError("column 'town': no row of training has 'Ulm'", shared="its table has unseen values")
        with pytest.raises(PartyFailed, match="ada failed: its table has unseen values") as failed:
            await there.hub.assemble(20)
        assert failed.value.hint == "its own log says more"


async def test_a_party_under_a_false_name_is_refused_and_logged(certificates: Certificates, tmp_path: Path) -> None:
    async with place(certificates, tmp_path) as there:
        ada, eve = certificates.of("ada"), certificates.of("ada", "theirs")
        with pytest.raises(RefusedError, match=r"the server refused: no party 'eve' is in the roster"):
            await there.join("eve", ada)
        with pytest.raises(RefusedError, match=r"the certificate of 'ada' was shown by one who claims to be 'bob'"):
            await there.join("bob", ada)
        with pytest.raises(RefusedError, match=r"'ada' has 99 rows, the labels have 100 rows") as unequal:
            await there.join("ada", ada, rows=99)
        assert unequal.value.hint.startswith("all members need the same rows in the same order; or keys")
        with pytest.raises(RefusedError, match=r"it differs in batch$"):
            await there.join("ada", ada, config={**certificates.agreed.stated(), "batch": "other"})
        there.revoked.revoke(ada.chain_pem, "stolen")
        with pytest.raises(RefusedError, match=r"of 'ada' is revoked: stolen"):
            await there.join("ada", ada)
        assert [party for party, _ in there.refused()] == ["eve", "bob", "ada", "ada", "ada"]
        # These never reach a stream: a party of another authority, and one that talks plainly.
        with pytest.raises(RefusedError, match=r"the certificate of the server at .* is not accepted"):
            await there.join("ada", eve)
        with pytest.raises(EnvironmentFault, match=r"did not come within 0.5 s"):
            await there.join("ada", None, patience=0.5)
        assert not there.hub.members and len(there.refused()) == 5


async def test_a_certificate_of_another_authority_does_not_get_through_the_handshake(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The same holds for a party that trusts our server's certificate."""

    async with place(certificates, tmp_path) as there:
        eve, root = certificates.of("ada", "theirs"), certificates.of(SERVER).chain_pem
        credentials = grpc.ssl_channel_credentials(root, eve.key_pem, eve.chain_pem)
        options = [("grpc.ssl_target_name_override", dns_name(SERVER))]
        async with grpc.aio.secure_channel(f"127.0.0.1:{there.port}", credentials, options) as channel:
            call = channel.stream_stream(METHOD)()
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert not there.hub.members and there.refused() == []


async def test_a_party_trusts_the_pinned_server_only(certificates: Certificates, tmp_path: Path) -> None:
    async with place(certificates, tmp_path) as there:
        with pytest.raises(RefusedError, match=r"'server' showed the certificate .* and the roster pins"):
            await there.join("ada", certificates.of("ada"), pin=certificates.of(SERVER, "theirs").fingerprint)
        assert there.refused() == []


async def test_a_party_with_an_identity_does_not_talk_to_a_plain_server(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with place(certificates, tmp_path, secure=False) as there:
        with pytest.raises(RefusedError, match=r"no secure connection with .*: wrong version number") as plain:
            await there.join("ada", certificates.of("ada"))
        assert "--insecure" in plain.value.hint


async def test_a_party_revoked_in_a_run_is_cut_off_and_named_to_the_others(
    certificates: Certificates, tmp_path: Path
) -> None:
    async with place(certificates, tmp_path) as there:
        (ada, to_ada), (bob, to_bob) = await there.join_all()
        watch = asyncio.create_task(there.hub.watch_revocations())
        sides = [
            asyncio.create_task(one.attend(link.deliver, partial(link.recv, Gradient, 1)))
            for one, link in ((ada, to_ada), (bob, to_bob))
        ]
        there.revoked.revoke(certificates.of("ada").chain_pem, "stolen")
        begin = asyncio.get_running_loop().time()
        with pytest.raises(RefusedError, match="'ada' was cut off: its certificate is revoked: stolen") as cut:
            await there.cohort.collect(Embedding, 1, Quorum(limit=20))
        with pytest.raises(RefusedError, match="the server refused: 'ada': its certificate is revoked: stolen"):
            await sides[0]
        assert asyncio.get_running_loop().time() - begin < 2.5
        there.hub.say_failure("ada", cut.value)
        with pytest.raises(PartyFailed, match=r"^'ada' was cut off: its certificate is revoked: stolen"):
            await sides[1]
        assert there.refused() == [("ada", "its certificate is revoked: stolen")]
        watch.cancel()


async def test_a_party_that_is_given_up_hears_why_and_ends(certificates: Certificates, tmp_path: Path) -> None:
    """It is alive and connected, and has only not answered in time."""

    async with place(certificates, tmp_path) as there:
        (ada, to_ada), _ = await there.join_all()
        side = asyncio.create_task(ada.attend(to_ada.deliver, partial(to_ada.recv, Gradient, 1), link=to_ada))
        with pytest.raises(PartyLost, match="ada was lost: no Embedding for round 1") as lost:
            await there.cohort.collect(Embedding, 1, Quorum(limit=0.1))
        there.hub.say_failure("ada", lost.value)
        await there.hub.part(0)
        with pytest.raises(PartyFailed, match=r"^ada was lost: no Embedding for round 1"):
            await side


@pytest.mark.parametrize("closed", [False, True])
async def test_a_server_that_says_farewell_and_hangs_up_ends_a_party_that_still_needs_it(
    certificates: Certificates, tmp_path: Path, *, closed: bool
) -> None:
    async with place(certificates, tmp_path) as there:
        (ada, to_ada), _ = await there.join_all()
        enough = asyncio.Event()
        wait = enough.wait if closed else partial(to_ada.recv, Gradient, 1)  # after the last round it needs none
        side = asyncio.create_task(ada.attend(to_ada.deliver, wait, link=to_ada))
        if closed:
            there.cohort["ada"].close()
        await there.hub.part(0)
        if closed:
            await asyncio.sleep(0.2)
            enough.set()
            assert await side
        else:
            with pytest.raises(PartyLost, match="server was lost: it ended the run early"):
                await side


@pytest.mark.parametrize(
    ("error", "heard", "hint"),
    [
        (OSError("no space left\non device"), r"ada failed: an unforeseen error \(OSError\)$", "its own log says more"),
        (
            DataError("no column 'age'", hint="name another"),
            "ada failed: it cannot go on with its own data$",
            "its own log says more",
        ),
        (
            ContractError("server", "Gradient", "dh", "finite numbers", "nan"),
            "ada failed: server sent Gradient.dh: expected fin",
            "",
        ),
    ],
    ids=["foreign", "ours", "the server's fault"],
)
async def test_the_server_receives_the_public_part_of_a_party_sides_error(
    certificates: Certificates, tmp_path: Path, error: Exception, heard: str, hint: str
) -> None:
    async def side() -> None:
        raise error

    async with place(certificates, tmp_path) as there:
        (ada, to_ada), _ = await there.join_all()
        with pytest.raises(type(error)):
            await ada.attend(to_ada.deliver, side)
        await ada.leave()
        with pytest.raises(PartyFailed, match=heard) as failed:
            await there.cohort.collect(Embedding, 1, Quorum(limit=20))
        assert failed.value.hint == hint


async def test_a_party_that_hangs_up_without_a_word_is_lost(certificates: Certificates, tmp_path: Path) -> None:
    async with place(certificates, tmp_path) as there:
        (ada, _), _ = await there.join_all()
        await ada.leave()
        with pytest.raises(PartyLost, match="ada was lost: the connection was closed"):
            await there.cohort.collect(Embedding, 1, Quorum(limit=20))
