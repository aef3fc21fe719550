"""Noise on responses to the parties under `server.privacy.answers`: clipping, noise and accounting in one call."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from colonnade.common.config.label_privacy import ResponseNoiseConfig
from colonnade.common.data.rows import generator
from colonnade.common.models.row_gradients import Parameters, RowLoss, row_gradients
from colonnade.common.privacy.noise import Normals, secure_normals, seeded_normals
from colonnade.common.privacy.response_noise import RowNoise
from colonnade.common.run.state import State
from colonnade.server.privacy.label_budget import RowReleases


class ResponseNoise:
    """Protects the training labels in one session's messages. The mechanism is in common/privacy/response_noise.py.

    Made once a session, by `ServerContext.protection`. *Everything* that depends on training labels and reaches a
    party now or later must pass through it: messages through `rows` or `mean`, the server's own step through
    `gradients`. Every call is one release of every row of the batch. Values are contributions to the *sum* over the
    batch's rows, not divided by their number, and each depends only on its own row's label (for gradients
    `row_gradients` ensures it):

        loss, at_h = noise.descend(loss_of_row, parameters, h, y, batch)  # the optimiser may step now
        dh = noise.rows(at_h[:, index], batch) / len(batch)

    Args:
        paid: the releases so far, which a new session does not reset.
        state: of the server side; seeded noise is drawn from it, and restored with it.
        seed: the federation's, for seeded noise.
    """

    def __init__(self, config: ResponseNoiseConfig, paid: RowReleases, state: State, seed: int) -> None:
        normals: Normals = secure_normals
        if config.seeded:
            normals = seeded_normals(state.keep("answer noise", lambda: generator("answers", seed)))
        self._paid = paid
        self._answer = RowNoise(config.clip, config.noise_multiplier, normals)
        self._step = RowNoise(config.head_clip, config.noise_multiplier, normals)

    def descend(
        self, loss: RowLoss, named: Parameters, h: Tensor, targets: Tensor, batch: Tensor
    ) -> tuple[float, Tensor]:
        """Puts the protected gradient of the batch's mean loss into every parameter's `grad`.

        Args:
            h: its inputs for the batch, (rows, ...).
            targets: labels, (rows,) or (rows, classes).
            batch: row numbers, int64 (rows,).

        Returns the mean loss, and every row's gradient of its own loss at h, of h's shape: neither is protected yet.
        Raises InputError if the loss cannot be differentiated row by row.
        """
        losses, at_parameters, at_h = row_gradients(loss, named, h, targets)
        for name, gradient in self.gradients(at_parameters, batch).items():
            named[name].grad = gradient
        return losses.mean().item(), at_h

    def rows(self, values: Tensor, batch: Tensor) -> Tensor:
        """One response with a value per row, each clipped to C; every entry gets noise of standard deviation sigma C.

        Values are (rows, k): gradients at a party's outputs, or differences of losses. Raises EnvironmentFault, and
        releases nothing, if the privacy cost cannot be written.
        """
        self._paid.spend(batch)
        return self._answer.rows(values)

    def mean(self, values: Tensor, batch: Tensor) -> Tensor:
        """One response for the whole batch: the mean of rows clipped to C, (rows, k) -> (k,).

        The noise's standard deviation is sigma C / rows. Raises as `rows`.
        """
        self._paid.spend(batch)
        (total,) = self._answer.sums([values])
        return total / len(batch)

    def gradients(self, gradients: Mapping[str, Tensor], batch: Tensor) -> dict[str, Tensor]:
        """The server's own step: the mean of rows that are clipped to C_0 over all parameters together.

        Maps gradients of every row, (rows, *shape) by parameter, to (*shape) with noise of standard deviation
        sigma C_0 / rows in every entry.
        """
        self._paid.spend(batch)
        totals = self._step.sums(list(gradients.values()))
        return {name: total / len(batch) for name, total in zip(gradients, totals, strict=True)}
