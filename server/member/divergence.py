"""Divergence of a run: its checkpoints, and rollback with lower learning rates (`federation.back_off`)."""

from __future__ import annotations

from colonnade.common.config.remedy import advice
from colonnade.common.config.run_options import back_off_factor
from colonnade.common.errors import TrainingDiverged
from colonnade.server.member.saving import Saving
from colonnade.server.training.context import ServerContext


def refuse_sustained(ctx: ServerContext, saving: Saving | None, round: int) -> None:
    """Called after a round: raises TrainingDiverged if the loss keeps exploding and the run may still roll back."""
    if ctx.watch.sustained and saving is not None and saving.backed_off < ctx.federation.back_off:
        raise ctx.watch.diverged(round)


def worth_saving(ctx: ServerContext, saving: Saving, last: int) -> bool:
    """False if a checkpoint of this round may belong to a divergence and there is no sound one besides it."""
    return bool(saving.sound) or not ctx.watch.growing or ctx.round >= last


async def after_divergence(ctx: ServerContext, saving: Saving | None, diverged: TrainingDiverged) -> None:
    """Drops the checkpoints of a divergence, and lowers the learning rates of the next session.

    `saving` is None if the run keeps no checkpoints. Raises TrainingDiverged if no rollback is left.
    """
    times, most = ctx.backed_off, 0 if saving is None else ctx.federation.back_off
    sound = 0 if saving is None else await saving.go_back(times + (times < most), ctx.federation.timeouts.answer)
    ctx.telemetry.event(
        "diverged", party=diverged.member, round=diverged.round, reason=diverged.reason,
        members=list(diverged.members), sound=sound,
    )  # fmt: skip
    if times >= most:
        diverged.sound = sound
        diverged.advice = advice(ctx.federation, diverged.members, sound)
        diverged.hint = diverged.hint or diverged.advice
        raise diverged
    ctx.telemetry.event(
        "back_off", party=diverged.member, round=sound, times=times + 1, factor=back_off_factor(times + 1),
        reason=diverged.reason,
    )  # fmt: skip
