"""Parties' responses to the server about rows after training, as in an evaluation or a prediction."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.data.rows import generator
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.codes import CodeRelease, DiscretePlan, SeededSets
from colonnade.common.privacy.gaussian import GaussianPlan, GaussianRelease
from colonnade.common.privacy.noise import Normals, secure_bytes, seeded_normals
from colonnade.common.privacy.release import QuantisedRelease, Release, release_clear
from colonnade.common.privacy.rows import RowBudget, RowPlan, RowRelease
from colonnade.common.privacy.shaped import Rescale
from colonnade_lab.attacks.run import AttackedRun


def predicted(run: AttackedRun, by: AttackedRun | None = None) -> tuple[Tensor, list[Tensor]]:
    """Returns row numbers, int64 (n,), and every party's responses about these rows of `run`, float32 (n, width).

    The models of `by`, by default the run's own, respond about training and held-out rows, in blocks of a batch. Each
    block is released by itself as in an evaluation, with its own noise. Partial blocks are dropped if there are full
    ones: a clip acts on a whole matrix, and clips fewer rows less.
    """
    part = run.schedule.partition
    blocks = [block for rows in (part.train, part.test, part.validation) for block in _blocks(run, rows)]
    return torch.cat(blocks), [_answers(run, by or run, party, blocks) for party in run.config.federation.names]


def of_training(run: AttackedRun) -> tuple[Tensor, list[Tensor]]:
    rows, parts = predicted(run)
    count = int(torch.isin(rows, run.schedule.partition.train).sum())  # training rows come first
    return rows[:count], [part[:count] for part in parts]


def shows_parts(run: AttackedRun) -> bool:
    """Returns True if the server sees each party's part, not only blind or decoded sums."""
    federation = run.config.federation
    kinds = CONTRACTS[run.protocol].kinds
    clear = any("part" in kind.__dataclass_fields__ for kind in kinds.values())
    return clear and not federation.protocol.blinded


def _blocks(run: AttackedRun, rows: Tensor) -> list[Tensor]:
    size = run.config.federation.batch
    whole = len(rows) // size * size or len(rows)
    return list(torch.split(rows[:whole], size)) if len(rows) else []


@torch.no_grad()
def _answers(run: AttackedRun, by: AttackedRun, party: str, blocks: list[Tensor]) -> Tensor:
    local, columns = by.local(party)
    columns = columns if by is run else run.columns(party)
    release = _release(run, party)  # which counts this run's rows; shadows have the same
    return torch.cat([release(local(columns[block]), evaluation=True, rows=block) for block in blocks])


def _release(run: AttackedRun, party: str) -> Release:
    """Returns the party's own privacy stage for an evaluation. No budget is charged, since no message leaves."""
    plan, seed = run.schedule.privacy, run.config.federation.seed
    form, draws = run.config.federation.compress.evaluations, generator("asked", seed, party)
    inner: Release = release_clear
    if plan is not None:
        inner = _protection(plan, seeded_normals(draws))
    return inner if form == AS_IS else QuantisedRelease(inner, form, form, draws)


def _protection(plan: PrivacyPlan, normals: Normals) -> Release:
    budget = Budget(None, None, plan.releases)
    match plan:
        case DiscretePlan():
            bits = secure_bytes()
            training, held_out = (SeededSets(each, lambda _rows: bits) for each in (plan.training, plan.held_out))
            return CodeRelease(plan, training, held_out, plan.rows, lambda: 1.0)
        case RowPlan():
            counts = RowBudget(budget, torch.zeros(plan.rows, dtype=torch.int64))
            return RowRelease(plan, normals, counts, Rescale("none", plan.config.clip, plan.deviation))
        case GaussianPlan():
            return GaussianRelease(plan, normals, budget)
    raise TypeError(f"no release of {type(plan).__name__}")
