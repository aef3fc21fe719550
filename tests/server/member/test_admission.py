"""Admission by certificates, and disconnection when they are revoked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.parcels import Refusal, Welcome
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import PartyAway, PartyLost, RefusedError
from colonnade.common.protocols.split import Embedding
from tests.server.stage import FakeConnection, Stage, federation, hello, refused, stage
from tests.support.patience import PATIENCE


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    for name in ("ours", "twins", "theirs"):
        make_federation(folder / name, ["ada", "bob"])
    return folder


def pins(certificates: Path) -> dict[str, str]:
    return {name: identity(certificates, name).fingerprint for name in ("ada", "bob")}


def identity(certificates: Path, name: str, of: str = "ours") -> Identity:
    return load_identity(certificates / of / name)


async def test_a_party_is_known_by_its_pinned_certificate(certificates: Path) -> None:
    there = stage(federation(pins(certificates)), secure=True)
    for name in ("ada", "bob"):
        connection = await there.come(hello(name, there.agreed), identity(certificates, name).chain_pem)
        assert connection.last == Welcome()


async def test_joining_under_another_name_or_without_the_pinned_certificate_is_refused(certificates: Path) -> None:
    there = stage(federation(pins(certificates)), secure=True)
    first = hello("ada", there.agreed)
    ours, twin = identity(certificates, "ada").fingerprint[:19], identity(certificates, "ada", "twins")
    said = [
        (await refused(there, first, pem)).reason
        for pem in (None, identity(certificates, "bob").chain_pem, twin.chain_pem, b"no certificate")
    ]
    assert said[:3] == [
        "no certificate was shown",
        "the certificate of 'bob' was shown by one who claims to be 'ada'",
        f"'ada' showed the certificate {twin.fingerprint[:19]}…, and the roster pins {ours}…",
    ]
    assert said[3].startswith("a bad certificate was shown")


async def test_a_revoked_party_does_not_join(certificates: Path, tmp_path: Path) -> None:
    ada = identity(certificates, "ada")
    there = stage(federation(pins(certificates)), make_list(tmp_path), secure=True)
    there.revoked.revoke(ada.chain_pem, "the laptop was stolen")
    answer = await refused(there, hello("ada", there.agreed), ada.chain_pem)
    assert answer.reason.endswith("of 'ada' is revoked: the laptop was stolen")


def make_list(folder: Path) -> Path:
    RevocationList.create(folder / "revoked.json")
    return folder / "revoked.json"


async def test_joining_is_refused_while_the_list_of_revoked_certificates_is_broken(
    certificates: Path, tmp_path: Path
) -> None:
    there = stage(federation(pins(certificates)), make_list(tmp_path), secure=True)
    (tmp_path / "revoked.json").write_text("{")
    pem = identity(certificates, "ada").chain_pem
    answer = await refused(there, hello("ada", there.agreed), pem, noted="is broken")
    assert answer.reason == "it cannot use its own keys, certificates or revocation list"


# During a session.


async def secured(
    certificates: Path, folder: Path, **agreed: Any
) -> tuple[Stage, list[FakeConnection], asyncio.Task[None]]:
    there = stage(federation(pins(certificates), **agreed), make_list(folder), secure=True)
    both = [await there.come(hello(n, there.agreed), identity(certificates, n).chain_pem) for n in ("ada", "bob")]
    return there, both, asyncio.create_task(there.hub.watch_revocations())


async def test_a_party_revoked_in_a_run_is_cut_off_and_the_round_reports_it(certificates: Path, tmp_path: Path) -> None:
    there, (ada, bob), _watch = await secured(certificates, tmp_path)
    cohort = await there.assemble(1)
    collecting = asyncio.create_task(cohort.collect(Embedding, 1, Quorum(limit=60)))
    await asyncio.sleep(3)
    there.revoked.revoke(identity(certificates, "ada").chain_pem, "stolen")
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
    assert ada.last == Refusal("'ada': its certificate is revoked: stolen")
    with pytest.raises(RefusedError, match="'ada' was cut off: its certificate is revoked: stolen"):
        await collecting
    assert there.logged("refused") == [{"party": "ada", "reason": "its certificate is revoked: stolen"}]
    assert [event["party"] for event in there.logged("leave")] == ["ada"]
    ada.arrive(Embedding(1, torch.ones(2, 2)))
    bob.arrive(Embedding(1, torch.ones(2, 2)))
    answers = await cohort.collect(Embedding, 1, Quorum(need=1))
    assert list(answers) == ["bob"]


@pytest.mark.parametrize("absence", ["rollback", "wait"])
async def test_a_party_revoked_between_two_rounds_is_not_waited_for(
    certificates: Path, tmp_path: Path, absence: str
) -> None:
    there, (ada, _bob), _watch = await secured(certificates, tmp_path, absence=absence)
    await there.assemble(1)
    there.revoked.revoke(identity(certificates, "ada").chain_pem, "stolen")
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
    with pytest.raises(RefusedError, match="'ada' was cut off: its certificate is revoked: stolen"):
        await there.hub.gate()


async def test_revoking_a_party_ends_the_wait_for_another(certificates: Path, tmp_path: Path) -> None:
    there, (ada, bob), _watch = await secured(certificates, tmp_path, absence="wait")
    await there.assemble(1)
    ada.lose(PartyAway("ada", "the connection was closed"))
    waiting = asyncio.create_task(there.hub.gate())
    await asyncio.sleep(3)
    assert not waiting.done()
    there.revoked.revoke(identity(certificates, "bob").chain_pem, "stolen")
    await asyncio.wait_for(bob.closed.wait(), PATIENCE)
    with pytest.raises(RefusedError, match="'bob' was cut off: its certificate is revoked: stolen"):
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_run_continues_without_a_revoked_party_if_allowed(certificates: Path, tmp_path: Path) -> None:
    more = {"absence": "continue", "quorum": {"need": 1, "grace": 1}}
    there, (ada, bob), _watch = await secured(certificates, tmp_path, **more)
    cohort = await there.assemble(1)
    there.revoked.revoke(identity(certificates, "ada").chain_pem, "stolen")
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
    await there.hub.gate()
    bob.arrive(Embedding(1, torch.ones(2, 2)))
    assert list(await cohort.collect(Embedding, 1, Quorum(need=1))) == ["bob"]


async def test_a_party_revoked_before_the_beginning_has_not_joined(certificates: Path, tmp_path: Path) -> None:
    there, (ada, bob), watch = await secured(certificates, tmp_path)
    for name in ("ada", "bob"):
        there.revoked.revoke(identity(certificates, name).chain_pem, "stolen")
    await asyncio.sleep(1.5)
    assert ada.closed.is_set() and bob.closed.is_set() and not there.hub.members and not watch.done()
    with pytest.raises(PartyLost, match="ada, bob was lost: did not join"):
        await there.assemble(1)


async def test_a_list_that_breaks_in_a_run_is_logged_once_and_read_again(certificates: Path, tmp_path: Path) -> None:
    there, (ada, _bob), watch = await secured(certificates, tmp_path)
    mended = (tmp_path / "revoked.json").read_text()
    (tmp_path / "revoked.json").write_text("{")
    await asyncio.sleep(5)
    (logged,) = there.logged("revocations")
    assert "is broken" in logged["reason"] and not watch.done() and not ada.closed.is_set()
    (tmp_path / "revoked.json").write_text(mended)
    there.revoked.revoke(identity(certificates, "ada").chain_pem, "stolen")
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
