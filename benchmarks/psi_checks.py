"""An alignment with checks against the same one without: processor time of all members, in turns, in one process.

The members have certificates, so that every pledge is signed and verified. Each mode is compared with the runs without
checks before and after it.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
from pathlib import Path

from benchmarks.psi import PARTIES, _processor, _tree
from benchmarks.report import Figure
from colonnade.client.alignment.matching import Matching
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.config.federation import AlignChecks, FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation import inprocess
from colonnade.common.crypto.pki.federation import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.parsing.file import parse
from colonnade.server.alignment.relay import Aligning

KEYS, TURNS = 5000, 3
RATIOS: dict[AlignChecks, float] = {"signed": 1.1, "planted": 1.1, "proofs": 4}


def main() -> list[Figure]:
    people = RowKeys(tuple(b"person %d" % n for n in range(KEYS)))
    with tempfile.TemporaryDirectory() as folder:
        agreed, identities = _certified(Path(folder))
        return [_against_none(agreed, identities, people, checks, bound) for checks, bound in RATIOS.items()]


def _against_none(
    agreed: FederationConfig, identities: dict[str, Identity], people: RowKeys, checks: AlignChecks, bound: float
) -> Figure:
    seconds: dict[AlignChecks, list[float]] = {"none": [], checks: []}
    for _ in range(TURNS):
        for mode, taken in seconds.items():
            gc.collect()
            taken.append(_processor(lambda: inprocess.run_virtual(_align(agreed, identities, people, mode))))  # noqa: B023
    ours, floor = (1e6 * statistics.median(seconds[mode]) / KEYS / (PARTIES + 1) for mode in (checks, "none"))
    what = f"alignment of {KEYS} keys, {PARTIES} parties and the server, align_checks: {checks}"
    return Figure(what, ours, bound, "us a key", floor, "without checks")


async def _align(agreed: FederationConfig, identities: dict[str, Identity], keys: RowKeys, checks: AlignChecks) -> None:
    names, session = list(agreed.names), Session()
    cohort, links = inprocess.connect(names, alignment_kinds(agreed), alignment_limits(len(names) + 1))
    parties = []
    for name in names:
        half = Matching(
            name, agreed, PolicyConfig(), keys, session, links[name], checks=checks, identity=identities[name]
        )
        parties.append(half())
    server = Aligning(agreed, keys, session, cohort, checks=checks)
    await asyncio.gather(server(), *parties)


def _certified(folder: Path) -> tuple[FederationConfig, dict[str, Identity]]:
    agreed = parse(_tree(PARTIES)).federation
    pins = make_federation(folder, list(agreed.names))
    agreed = agreed.model_copy(update={"server": pins.pop("server"), "parties": pins})
    return agreed, {name: load_identity(folder / name) for name in pins}
