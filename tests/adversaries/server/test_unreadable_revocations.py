"""The list of revoked certificates disappears in a run: a warning at once, then no round until it is back.

Bounds: no cell.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import IdentityError
from tests.server.stage import Stage, federation, hello, stage


async def begun(folder: Path) -> tuple[Stage, Path]:
    make_federation(folder / "keys", ["ada", "bob"])
    identities = {name: load_identity(folder / "keys" / name) for name in ("ada", "bob")}
    listed = folder / "revoked.json"
    RevocationList.create(listed)
    there = stage(federation({name: one.fingerprint for name, one in identities.items()}), listed, secure=True)
    for name, one in identities.items():
        await there.come(hello(name, there.agreed), one.chain_pem)
    await there.assemble(1)
    return there, listed


async def test_rounds_stop_until_the_list_is_read_again(tmp_path: Path) -> None:
    there, listed = await begun(tmp_path)
    watch = asyncio.create_task(there.hub.watch_revocations())
    words = listed.read_bytes()
    listed.unlink()
    await asyncio.sleep(2.5)
    assert [str(listed) in event["reason"] for event in there.logged("revocations")] == [True]
    await asyncio.wait_for(there.hub.gate(), 0.1)  # it may be on its way to another place
    await asyncio.sleep(20)
    waiting = asyncio.create_task(there.hub.gate())
    await asyncio.sleep(5)
    assert not waiting.done()
    assert there.logged("revocations")[-1] == {"reason": "no round is opened until the list is read again"}
    listed.write_bytes(words)
    await asyncio.wait_for(waiting, 5)
    watch.cancel()


async def test_a_list_that_does_not_come_back_ends_the_run(tmp_path: Path) -> None:
    there, listed = await begun(tmp_path)
    watch = asyncio.create_task(there.hub.watch_revocations())
    listed.write_text("{")
    with pytest.raises(IdentityError, match="could not be read for") as ended:
        while True:
            await asyncio.sleep(1)
            await there.hub.gate()
    assert "--resume" in ended.value.hint
    watch.cancel()
