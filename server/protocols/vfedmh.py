"""VFedMH, server side: the active party. The box: common/protocols/vfedmh.py."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from operator import attrgetter

from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.models.two_part import TwoPart
from colonnade.common.protocols.vfedmh import Config, Embedding, Evaluation, Global, Gradient, Prediction
from colonnade.server.aggregation.masked_sums import Clear, Found, Sums, blinded
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import ActiveJoint, active_joint, active_party
from colonnade.server.training.imputation import StandIn


def joint_of_rows(ctx: ServerContext, cfg: Config) -> Callable[[Tensor], ActiveJoint]:
    """The joint model by rows, as the server has columns of its own."""
    return active_joint(ctx, cfg.embedding, "embeddings")


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Averages the parties' embeddings with its own, and sends every party the gradient of its predictions' loss."""
    width, loss, model = cfg.embedding, ctx.loss, active_party(ctx, cfg.embedding)
    present = StandIn(ctx, tuple(clients), width, "zero")  # missing parties are not averaged
    clear = Clear(ctx, clients, Embedding, Evaluation, attrgetter("e"), present, width=width)
    sums = clear if cfg.aggregate == "clear" else await blinded(ctx, clients, width)
    together = Together(ctx, clients, sums)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        own = model.embed(_columns(ctx, batch))
        found = await sums.training(t, batch)  # 1
        if found.total is None:
            ctx.skip(t, found.answers)
            continue
        e, predictions = await together.predictions(t, 0, own, found)  # 2, 3
        gradients = {}
        for party, prediction in predictions.items():  # 4
            r = prediction.r.to(ctx.device)
            gradients[party] = Gradient(t, loss.gradient(r, ctx.targets(batch, r)) / len(batch))
        await clients.broadcast(gradients)
        r = model.predict(e)
        y = ctx.targets(batch, r)
        model.learn(loss.gradient(r, y) / len(batch), 1 / (len(found.answers) + 1))
        ctx.record(t, loss.value(r, y).mean().item(), found.answers)
        await _evaluate(ctx, together, model, t, found.answers)


class Together:
    """The global embedding, and every member's predictions from it."""

    def __init__(self, ctx: ServerContext, clients: Cohort, sums: Sums) -> None:
        self.sums = sums
        self._ctx, self._clients = ctx, clients

    async def predictions(
        self, round: int, stage: int, own: Tensor, found: Found
    ) -> tuple[Tensor, Responses[Prediction]]:
        """E of a batch or block, on the device, and R_k of the parties that send it in time.

        `own` is E_a, float32 (rows, width); `found` must have a sum.
        """
        assert found.total is not None
        count = len(found.answers) + 1
        e = (own + found.total.to(self._ctx.device)) / count
        await self._clients.broadcast(dict.fromkeys(found.answers, Global(round, stage, count, e)))
        responses = await self._clients.collect(
            Prediction,
            round,
            self._ctx.quorum,
            among=found.answers,
            stale=partial(_before, stage),
            rows=len(e),
            classes=self._ctx.federation.outputs,
        )
        for party, prediction in responses.items():
            if prediction.stage != stage:
                raise ContractError(party, "Prediction", "stage", str(stage), str(prediction.stage))
        return e, responses


async def _evaluate(ctx: ServerContext, together: Together, model: TwoPart, round: int, among: Collection[str]) -> None:
    """Evaluates every member's model on the parts that are due; the active party's is the run's.

    If a block has no sum the evaluation is given up: the same rows summed over other parties would reveal values.
    """
    stage = 0
    for part in ctx.schedule.evaluations(round):
        score, scores = ctx.score(), {party: ctx.score() for party in among}
        for number, block in enumerate(ctx.schedule.blocks(part)):
            stage += 1
            found = await together.sums.block(round, part, number, len(block), among)
            if found.total is None:
                ctx.warn(f"round {round}: no evaluation of the {part} rows, since a party did not answer")
                return
            with model.evaluation() as still:
                e, predictions = await together.predictions(round, stage, still.embed(_columns(ctx, block)), found)
                score.add(still.predict(e), ctx.labels[block])
            for party, prediction in predictions.items():
                scores[party].add(prediction.r.to(ctx.device), ctx.labels[block])
        metric = ctx.plain_metric
        theirs = {f"{metric}_{party}": each.metrics[metric] for party, each in scores.items() if each.rows}
        ctx.evaluated(round, part, score, **theirs)


def _columns(ctx: ServerContext, rows: Tensor) -> Tensor:
    assert ctx.columns is not None  # required by the protocol's contract
    return ctx.columns[rows]


def _before(stage: int, prediction: Prediction) -> bool:
    return prediction.stage < stage
