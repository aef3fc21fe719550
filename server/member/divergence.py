"""The server's side of a run's checkpoints: restored, saved when due, and dropped after a divergence, which lowers the
learning rates (`federation.back_off`)."""

from __future__ import annotations

from collections.abc import Callable

from colonnade.common.config.remedy import advice
from colonnade.common.config.run_options import back_off_factor
from colonnade.common.conversation.control import Save
from colonnade.common.errors import TrainingDiverged
from colonnade.common.models.torch_generators import keep_generators
from colonnade.common.run.phases import CHECKPOINT
from colonnade.common.run.state import Snapshot
from colonnade.server.member.saving import Saving
from colonnade.server.member.traffic import Totals
from colonnade.server.training.context import ServerContext


def refuse_sustained(ctx: ServerContext, saving: Saving | None, round: int) -> None:
    """Called after a round: raises TrainingDiverged if the loss keeps exploding and the run may still roll back."""
    if ctx.watch.sustained and saving is not None and saving.backed_off < ctx.federation.back_off:
        raise ctx.watch.diverged(round)


def restore(ctx: ServerContext, saving: Saving | None, round: int, snapshot: Snapshot | None) -> None:
    """Restores the server's state after a round, or begins anew; `saving` is None if the run keeps no checkpoints."""
    if saving is not None and round:
        saving.restored(round)
    ctx.restore(round, snapshot, 0 if saving is None else saving.backed_off)
    keep_generators(ctx.state, ctx.device, ctx.draws)
    if saving is not None and saving.best != ctx.best.round:
        saving.best = 0  # the restored round precedes it


async def save_if_due(
    ctx: ServerContext,
    saving: Saving,
    totals: Totals,
    round: int,
    ask: Callable[[Save], None],
    *,
    whole: Callable[[], bool] = lambda: True,
) -> None:
    """Begins a checkpoint if one is due after this round; waits for that of the last round.

    Args:
        ask: asks the parties for their part.
        whole: False if a party would be awaited in vain, since it has left or failed.
    """
    best, limit = ctx.best, ctx.federation.timeouts.answer
    last = round if best.stop else ctx.schedule.rounds
    if not (saving.due(round, last, best.round) and _worth_saving(ctx, saving, last)):
        return
    ctx.phases.turn(CHECKPOINT)
    await saving.make_way(limit)
    if not whole():
        return
    ctx.state.keep("traffic", dict[str, int]).update(totals.capture())
    names, sound = ctx.federation.names, not ctx.watch.growing
    await saving.begin(round, ctx.state.capture(), names, ask, best.round, sound=sound)
    if round == last:
        await saving.finish(limit)


def _worth_saving(ctx: ServerContext, saving: Saving, last: int) -> bool:
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
