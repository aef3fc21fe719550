"""What goes back to the parties under `server.privacy.answers`: clipped, noised and paid for in one call."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from common.data.rows import generator
from common.numerics.row_gradients import refuse_batch_norm
from common.privacy.answers import RowNoise
from common.privacy.noise import Normals, secure_normals, seeded_normals
from server.context import ServerContext


class Answers:
    """Protects the training labels of one session's messages: the mechanism is common/privacy/answers.py.

    A half makes it once a session, by `protection`, and passes through it *everything* that depends on training
    labels and reaches a party now or later: its messages by `rows` or `mean`, its own step by `gradients`. Every
    call is one release of every row of the batch. Values are shares of the *sum* over the batch's rows, not divided
    by their number, and each is a function of its own row's label (`row_gradients` sees to that for gradients):

        losses, at_parameters, at_inputs = row_gradients(loss, parameters, h, y)
        step = answers.gradients(at_parameters, batch)      # of the batch's mean loss: parameter.grad = step[name]
        dh = answers.rows(at_inputs[:, seat], batch) / len(batch)

    Args:
        ctx: of the server's half; seeded noise comes from its state, and goes back with it. What was paid never does.
    """

    def __init__(self, ctx: ServerContext) -> None:
        config, paid = ctx.config.privacy.answers, ctx.releases
        assert config is not None and paid is not None  # whoever opens the run sees to both
        seed = ctx.federation.seed
        normals: Normals = secure_normals
        if config.seeded:
            normals = seeded_normals(ctx.state.keep("answer noise", lambda: generator("answers", seed)))
        self._paid = paid
        self._answer = RowNoise(config.clip, config.noise_multiplier, normals)
        self._step = RowNoise(config.head_clip, config.noise_multiplier, normals)

    def rows(self, values: Tensor, batch: Tensor) -> Tensor:
        """One answer with a line for every row, each clipped to C: noise of deviation sigma C in every entry.

        Args:
            values: (rows, k): gradients at a party's outputs, or differences of losses.
            batch: their row numbers, int64 (rows,).

        Raises:
            EnvironmentFault: what it costs cannot be written down; nothing is released.
        """
        self._paid.spend(batch)
        return self._answer.rows(values)

    def mean(self, values: Tensor, batch: Tensor) -> Tensor:
        """One answer for the whole batch: the mean of rows that are clipped to C, (rows, k) -> (k,).

        The noise's deviation is sigma C / rows. Arguments and errors are those of `rows`.
        """
        self._paid.spend(batch)
        (total,) = self._answer.sums([values])
        return total / len(batch)

    def gradients(self, gradients: Mapping[str, Tensor], batch: Tensor) -> dict[str, Tensor]:
        """The server's own step: the mean of rows that are clipped to C_0 over all parameters together.

        Args:
            gradients: of every row at every parameter, (rows, *shape) by name.
            batch: as above.

        Returns:
            (*shape) by name, with noise of deviation sigma C_0 / rows in every entry.

        Raises:
            EnvironmentFault: as above.
        """
        self._paid.spend(batch)
        totals = self._step.sums(list(gradients.values()))
        return {name: total / len(batch) for name, total in zip(gradients, totals, strict=True)}


def protection(ctx: ServerContext, head: nn.Module) -> Answers | None:
    """The session's, or None where answers leave as they are.

    Args:
        ctx: of the server's half.
        head: what answers are made with.

    Raises:
        InputError: rows meet in the head, so that no row's share can be clipped.
    """
    if ctx.config.privacy.answers is None:
        return None
    refuse_batch_norm(head, "server.head")
    return Answers(ctx)
