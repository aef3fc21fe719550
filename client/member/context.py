"""A party's context over the rows of a table, before any session: in its process, on the virtual clock, in a check."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import torch

from colonnade.client.training.context import ClientContext
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import prepare, prepare_others


def party_context(
    name: str,
    federation: FederationConfig,
    config: PartyConfig,
    features: Features,
    schedule: Schedule,
    *,
    base: Path,
    device: torch.device,
    kept: EncoderFile | None = None,
    others: bool = False,
) -> ClientContext:
    """The context that `PartyLine` completes in every session; it releases nothing before.

    Args:
        features: all rows, in the agreed order.
        base: the folder that paths in the configuration are relative to.
        kept: the run's encoder file; None fits an encoder without storing it.
        others: True to predict rows other than the training table's; needs `kept`.

    Raises DataError or CheckpointError as `prepare`.
    """
    typed = federation.protocol.typed
    if others:
        assert kept is not None  # no model predicts without the encoder that it was trained with
        columns = prepare_others(config.data, features, federation.seed, name, kept, typed=typed)
    else:
        train = schedule.partition.train
        columns = prepare(config.data, features, train, federation.seed, name, kept, typed=typed)
    return ClientContext(
        name, federation, config, columns.to(device), schedule, _nothing, _nothing, base=base, device=device
    )  # fmt: skip


def _nothing(*_private: Any, **_how: Any) -> NoReturn:
    raise AssertionError("nothing is released outside a session")
