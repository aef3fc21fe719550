"""summary.json: the results of a run, in one file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from colonnade.common.config.run_options import back_off_factor
from colonnade.common.contracts.boosting import BoostedConfig
from colonnade.common.contracts.registry import parts_in_use
from colonnade.common.data.keys import KeyColumn, keys_of_rows
from colonnade.common.encryption.parameters import SumSize, security
from colonnade.common.errors import disk_faults, remedy
from colonnade.common.observability.telemetry import without_nan
from colonnade.common.privacy.accounting.accountant import stated_releases
from colonnade.common.privacy.accounting.plan import SEEDED, PrivacyPlan
from colonnade.common.privacy.accounting.zeroth_order import ZerothOrderClaim
from colonnade.common.run.environment import describe_environment
from colonnade.common.run.files import write_durably
from colonnade.common.run.run_folder import SUMMARY_SCHEMA, describe_source
from colonnade.server.member.planned import NO_STOP, NO_VALIDATION, PRIVATE
from colonnade.server.member.traffic import Totals
from colonnade.server.privacy import expected_releases
from colonnade.server.training.context import ServerContext
from colonnade.server.training.metrics import chance
from colonnade.server.training.metrics.best import named
from colonnade.server.training.round_modes import Staleness
from colonnade.server.training.trees.forest import Forest


def summarise(
    ctx: ServerContext,
    totals: Totals,
    status: str,
    failed: BaseException | None,
    *,
    seconds: float,
    saved: int,
    releases: Mapping[str, float],
    versions: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The summary of a run.

    Args:
        status: completed, interrupted or failed; `failed` is the error.
        saved: the best round whose checkpoint all members hold, 0 if none.
        releases: number of releases by party, where known.
        versions: versions of Colonnade by party, where they differ from the server's.
    """
    federation, model = ctx.federation, model_of(ctx, saved)
    ctx.complete()
    return {
        "schema": SUMMARY_SCHEMA,
        "status": status,
        "error": None if failed is None else str(failed),
        "hint": None if failed is None else remedy(failed) or None,
        "federation": federation.id,
        "protocol": federation.protocol.name,
        "dataset": describe_source(ctx.config.labels.model_dump(mode="json")),
        "parties": list(federation.names),
        "rows": {part: len(getattr(ctx.schedule.partition, part)) for part in ("train", "validation", "test")},
        "rows_hash": {part: _hash_of_rows(ctx, part) for part in ("validation", "test")},
        "rounds": ctx.round,
        "start": "public" if ctx.draws.public else "secret",
        "seconds": seconds,
        "metrics": dict(ctx.metrics),
        "best": ctx.best.summary(saved),
        "model": model,
        "stopped": ctx.stopped or None,
        "bytes": totals.summary(),
        **protection(ctx, releases),
        **findings(ctx, model["round"]),
        "missing": {name: ctx.missing.get(name, 0) for name in federation.names},
        "late": {name: totals.late.get(name, 0) for name in federation.names},
        "environment": {
            **describe_environment(),
            **parts_in_use(federation, ctx.config),
            **other_versions(versions),
        },
    }


def _hash_of_rows(ctx: ServerContext, part: str) -> str:
    """Hash that is equal in runs that evaluate on the same rows in any order; of row numbers where rows have no
    keys.
    """
    rows = getattr(ctx.schedule.partition, part)
    if (keys := keys_of_rows(ctx.ids, rows)) is None:
        ordered: Iterable[str] = map(bytes.decode, np.sort(rows.numpy().astype(bytes)))
    else:
        ordered = keys.ordered if isinstance(keys, KeyColumn) else sorted(keys)
    digest = hashlib.sha256(f"[{len(ctx.labels)}".encode())  # of a list in JSON, a key at a time
    for key in ordered:
        digest.update(f", {json.dumps(key)}".encode())
    digest.update(b"]")
    return digest.hexdigest()[:32]


def other_versions(others: Mapping[str, str]) -> dict[str, str]:
    named = ", ".join(f"{party} {version}" for party, version in sorted(others.items()))
    return {"other versions": named} if named else {}


def findings(ctx: ServerContext, model: int) -> dict[str, Any]:
    """Results that only some runs have; null in all others. `model` is the round whose model predicts."""
    return {
        "label_privacy": label_privacy(ctx),
        "answer_privacy": response_noise_summary(ctx),
        "theorem": theorem(ctx),
        "targets": None if ctx.scale is None else ctx.scale.record(),
        "details": ctx.findings() or None,
        "classes": None
        if ctx.balance is None
        else {**ctx.balance.summary(), "positive": ctx.positive, "names": list(ctx.classes)},
        "decision": None if (made := ctx.rule(model)) is None else made.summary(ctx.positive),
        "warning": warning(ctx),
        "fallen": ctx.fall.reason or None,
        "pace": pace(ctx),
        "forest": forest_findings(ctx),
        "absent": dict(ctx.absent) or None,
        "back_offs": back_offs(ctx),
    }


def model_of(ctx: ServerContext, saved: int) -> dict[str, Any]:
    """The round whose model predicts, and why; `saved` as in `summarise`."""
    best, federation = ctx.best, ctx.federation
    if best.round and saved == best.round:
        return {"round": best.round, "why": f"the best by validation {named(best.metric)}"}
    if best.round:
        why = f"the best, round {best.round}, is not on every member's disk"
    elif not len(ctx.schedule.partition.validation):
        why = NO_VALIDATION
    elif federation.stop is not None:
        why = "no round was evaluated"
    else:
        why = NO_STOP if federation.privacy is None else PRIVATE
    return {"round": ctx.round, "why": f"the last: {why}"}


def warning(ctx: ServerContext) -> str | None:
    """Warns if the model is no better than one without columns, on the test rows or else the validation rows."""
    baseline = "always predicting the mean" if ctx.balance is None else "always saying the commonest class"
    for part in ("test", "validation"):
        if part in ctx.details:
            return chance.warning(ctx.details[part].get("chance"), part, baseline)
    return None


def protection(ctx: ServerContext, releases: Mapping[str, float]) -> dict[str, Any]:
    """The parties' privacy: a person's `epsilon`, `epsilon` by party, `delta`, and their derivation.

    Every epsilon counts all `privacy.planned` releases, of which an early end may have left out some.
    `epsilon` is null where there is no guarantee; `privacy.void` then gives the reason, and `privacy.epsilon` the
    accounting's result. `person` is for a person present at every party. `releases` are the parties' own reports.
    """
    names, plan = ctx.federation.names, ctx.schedule.privacy
    if plan is None:
        return {"person": None, "epsilon": dict.fromkeys(names), "delta": None, "privacy": None}
    counts = {name: releases.get(name) for name in names}
    by_adjacency: dict[str, dict[str, float | None]] = {
        adjacency: {
            name: None if made is None else round(plan.epsilon(plan.stated(name, made), adjacency), 6)
            for name, made in counts.items()
        }
        for adjacency in plan.neighbours
    }
    void = plan.void
    return {
        "person": person(ctx, plan, counts),
        "epsilon": dict.fromkeys(names) if void else by_adjacency[plan.config.adjacency],
        "delta": plan.config.delta,
        "privacy": {
            "mechanism": plan.config.mechanism,
            "clip": plan.config.clip,
            "noise_multiplier": plan.noise_multiplier,
            "adjacency": plan.config.adjacency,
            "accounting": plan.config.accounting,
            "releases": counts,
            "planned": {name: plan.planned(name) for name in names},
            "limit": plan.affordable,
            "epsilon": by_adjacency,
            "void": void,
            **plan.summary(),
        },
    }


def person(ctx: ServerContext, plan: PrivacyPlan, counts: Mapping[str, float | None]) -> dict[str, Any]:
    """Privacy of a person present at every party, against all parties' releases together, without the label.

    `epsilon` is null where there is no bound, and `void` gives the reason: one member's unprotected messages suffice.
    """
    known = {name: plan.stated(name, made) for name, made in counts.items() if made is not None}
    void = plan.void
    if void is None and ctx.config.active is not None:
        void = "the server's own columns take part without noise"
    if void is None and (silent := [name for name in counts if name not in known]):
        void = f"{', '.join(silent)} did not say what was spent"
    epsilon = None if void else round(plan.person_epsilon(known.values()), 6)
    return {"parties": len(counts), "epsilon": epsilon, "delta": plan.config.delta, "void": void}


def label_privacy(ctx: ServerContext) -> dict[str, Any] | None:
    """Protection of the training labels, or None. Epsilon holds for each label, at delta 0; null for seeded noise."""
    if (noisy := ctx.noisy) is None:
        return None
    epsilon = None if noisy.seeded else round(noisy.epsilon, 6)
    return {**noisy.noise.summary(), "rows": len(noisy.values), "epsilon": epsilon, "delta": 0}


def pace(ctx: ServerContext) -> dict[str, Any] | None:
    """Turns and staleness by party in an asynchronous run, or None."""
    return Staleness(ctx, ctx.federation.names).summary() if Staleness.kept(ctx) else None


def back_offs(ctx: ServerContext) -> dict[str, Any] | None:
    """Number of rollbacks after divergences and the resulting factor of all learning rates, or None."""
    times = ctx.backed_off
    return {"times": times, "factor": round(back_off_factor(times), 9)} if times else None


def theorem(ctx: ServerContext) -> dict[str, Any] | None:
    """Bound of Theorem 4.1 of VFL-CZOFO from the run's measurements, or None where it does not apply."""
    if "theorem" not in ctx.state:
        return None
    claim = ZerothOrderClaim.of(ctx.state["theorem"], len(ctx.schedule.partition.train))
    return None if claim is None else claim.report()


def response_noise_summary(ctx: ServerContext) -> dict[str, Any] | None:
    """Privacy of the noise on all responses to the parties, or None.

    `epsilon` at `delta` holds for the label of every training row, against all parties together; it is null where
    there is no guarantee, and `void` gives the reason. `accounted` is the accounting's result alone. Both count all
    `planned` releases, if the run ended before them.
    """
    config, releases = ctx.config.privacy.answers, ctx.releases
    if config is None or releases is None:
        return None
    names, arrivals = ctx.federation.names, ctx.federation.protocol.asynchronous
    planned = expected_releases(ctx.schedule, len(names), arrivals=arrivals)
    accounted = round(releases.epsilon_of(stated_releases(releases.most, planned, None)), 6)
    return {
        "mechanism": "gaussian",
        "clip": config.clip,
        "head_clip": config.head_clip,
        "noise_multiplier": config.noise_multiplier,
        "adjacency": "replace",
        "accounting": releases.accounting,
        "delta": config.delta,
        "releases": releases.most,
        "planned": planned,
        "accounted": accounted,
        "epsilon": None if config.seeded else accounted,
        "void": SEEDED if config.seeded else None,
    }


def forest_findings(ctx: ServerContext) -> dict[str, Any] | None:
    """Number of trees, encryption of their gradients, and for every party the gain of its splits and the cuts that the
    server has learnt; None if the model is no forest.
    """
    cfg = ctx.federation.protocol
    if not isinstance(cfg, BoostedConfig) or "forest" not in ctx.state or "columns" not in ctx.state:
        return None
    forest: Forest = ctx.state["forest"]
    used = [forest.used(party) for party in range(len(forest.records))]
    total = sum(float(gains.sum()) for _, gains in used) or 1.0
    size = SumSize(len(ctx.schedule.partition.train))
    return {
        "trees": len(forest.trees),
        "depth": max((tree.depth for tree in forest.trees), default=0),
        "gradients": cfg.gradients,
        "precision": cfg.bits_of(size),
        "security": security() if cfg.gradients == "encrypted" else 0,
        "parties": {
            name: {
                "gain": float(gains.sum()) / total,
                "nodes": int(times.sum()),
                "columns": _revealed(forest, party, ctx.state["columns"][party]),
            }
            for party, (name, (times, gains)) in enumerate(zip(ctx.federation.names, used, strict=True))
        },
    }


def _revealed(forest: Forest, party: int, columns: Sequence[Sequence[Any]]) -> list[dict[str, int]]:
    """For each column, the number of cuts between its bins (words: bins less one) and of distinct splits asked for."""
    asked: list[set[Any]] = [set() for _ in columns]
    for record in forest.records[party]:
        bins, ordered, missing = columns[record.column][:3]
        left = np.unpackbits(np.frombuffer(record.left, np.uint8), count=bins)
        # where missing values go is no cut
        asked[record.column].add(int(left[: bins - missing].sum()) if ordered else record.left)
    return [
        {"cuts": bins - 1 - (ordered and missing), "revealed": len(found)}
        for (bins, ordered, missing, *_), found in zip(columns, asked, strict=True)
    ]


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON atomically: a reader finds the old file or the new one, never a partial one."""
    with disk_faults(f"{path} cannot be written", "make room on the disk, then resume"):
        write_durably(path, (json.dumps(without_nan(content), indent=2) + "\n").encode())
