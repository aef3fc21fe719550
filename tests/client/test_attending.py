"""A session that ends at both ends at once: the party's side fails in the moment in which the server stops it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from colonnade.client.dialling.membership import Membership
from colonnade.common.conversation.parcels import Failure, Rewind
from colonnade.common.conversation.session import Stage
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.errors import PartyFailed
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.wire.codec import Codec


async def attended(heard: Failure | Rewind) -> tuple[Any, list[dict[str, Any]]]:
    """The end of the session, and complaints of asyncio."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    member, woken = Membership(Codec({}), 1000, Telemetry()), asyncio.Event()
    member._session.state = Stage.RUNNING

    async def side() -> None:
        await woken.wait()
        raise TranscriptError("found in the same moment", other="party2", part="Save", round=2)

    session = asyncio.ensure_future(member.attend(lambda _item: None, side))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    woken.set()
    member._hear(heard)
    await asyncio.wait({session})
    end = session.exception() or session.result()
    del session
    gc.collect()
    await asyncio.sleep(0)
    return end, complaints


@pytest.mark.parametrize("heard", [Failure("party2", "its disk is full", ""), Rewind("again")], ids=["failed", "again"])
def test_what_the_server_said_counts_and_no_traceback_is_printed(heard: Failure | Rewind) -> None:
    end, complaints = asyncio.run(attended(heard))
    assert end is False if isinstance(heard, Rewind) else isinstance(end, PartyFailed)
    assert complaints == []
