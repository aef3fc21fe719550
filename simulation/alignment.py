"""An alignment of all members' tables on the virtual clock, before a simulated run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.client.alignment.matching import Matching
from colonnade.client.privacy.egress import Egress
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.config.members import Config
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.privacy.release import release_clear
from colonnade.server.alignment.relay import Aligning
from colonnade.simulation.files import RunFiles


async def find_rows(config: Config, base: Path, files: RunFiles | None = None) -> Mapping[str, Tensor]:
    """The rows of every member's source that all members have, int64 (common,), in their common order.

    Args:
        config: of the whole federation.
        base: the folder that paths in it are relative to.
        files: of the run, where rows are kept, or were kept before; None keeps none.

    Raises:
        ColonnadeError: as in a real run.
    """
    federation, own = config.federation, config.server
    if own is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    names, session = list(federation.names), Session(federation.id, "simulated", 1, federation.hashes())
    cohort, links = inprocess.connect(names, alignment_kinds(federation), alignment_limits(len(names) + 1))
    caches = {} if files is None else {member: files.tables(member) for member in (SERVER, *names)}
    with whose(SERVER):
        ids = load_labels(own.labels, base, federation.task, own.copies(caches.get(SERVER))).ids
        keys = {SERVER: RowKeys.of(ids, federation.keys, SERVER)}
    for name in names:
        with whose(name):
            ids = load_features(config.parties[name].data, federation.party_index(name), base, caches.get(name)).ids
            keys[name] = RowKeys.of(ids, federation.keys, name)
    for cache in caches.values():
        cache.keep()
    if files is not None and (before := files.aligned(keys)) is not None:
        return before
    keep = _kept_nowhere if files is None else files.alignment(SERVER, keys[SERVER]).keep
    aligning = Aligning(federation, keys[SERVER], session, cohort, keep=keep)
    sides: dict[str, Coroutine[Any, Any, Tensor]] = {SERVER: aligning()}
    for name in names:
        sides[name] = _party_side(name, config, keys[name], session, links[name], files)
    tasks = [asyncio.ensure_future(side) for side in sides.values()]
    try:
        return dict(zip(sides, await asyncio.gather(*tasks), strict=True))
    finally:  # the first error is the one that counts
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _party_side(
    name: str, config: Config, keys: RowKeys, session: Session, link: Link, files: RunFiles | None
) -> Tensor:
    """A party's side, with its ledger and its count of others' keys where the run has files."""
    federation, policy = config.federation, config.parties[name].policy
    if files is None:
        return await Matching(name, federation, policy, keys, session, link)()
    with closing(files.ledger(name, sys.maxsize)) as ledger:
        egress = Egress(link._carry, SERVER, release_clear, ledger)
        link._carry = egress
        return await Matching(
            name, federation, policy, keys,
            session=session, server=link, admit_masked=egress.admit_masked,
            keep=files.alignment(name, keys).keep, foreign=files.foreign_keys(name),
        )()  # fmt: skip


def _kept_nowhere(_number: str, _rows: Tensor) -> None: ...
