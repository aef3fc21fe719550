from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from colonnade.common.errors import InputError

Parameters = Mapping[str, Tensor]
RowLoss = Callable[[Parameters, Tensor, Tensor], Tensor]
"""(parameters by name, one row's inputs, its target) -> its loss, a scalar."""


def row_gradients(
    loss: RowLoss, parameters: Parameters, inputs: Tensor, targets: Tensor
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Losses and gradients of a batch, row by row. Dropout draws anew for every row.

    `loss` is of one row; `torch.func.functional_call` gives a module its parameters.

    Returns:
        The losses, (rows,); the gradients at the parameters, (rows, *shape) by name; at the inputs, (rows, ...).
    """
    each = vmap(grad_and_value(loss, argnums=(0, 1)), in_dims=(None, 0, 0), randomness="different")
    plain = {name: parameter.detach() for name, parameter in parameters.items()}
    try:
        (at_parameters, at_inputs), losses = each(plain, inputs.detach(), targets)
    except RuntimeError as failed:
        reason = str(failed).splitlines()[0]
        raise InputError(
            f"the model's gradients cannot be taken row by row: {reason}",
            hint="take a model, or head, without branches on values and without in-place changes of buffers",
        ) from failed
    return losses, at_parameters, at_inputs


def refuse_batch_norm(model: nn.Module, where: str) -> None:
    """Rejects layers in which rows interact: no row's share could be clipped. `where` is the model's key."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"{where}: layer {name or '0'} is a batch norm, in which one row's label changes all rows' gradients",
                hint="take a head without one, linear or mlp, or leave out server.privacy.answers",
            )
