"""Privacy of a search, which the noise of a single run does not cover."""

from __future__ import annotations

from colonnade.common.config.members import Config

TRIALS_PRIVACY = (
    "Every trial trains on the same rows with noise, and spends privacy: the epsilon of the final run covers neither "
    "the trials nor the choice among them. Search on data that are not secret, or with `privacy` left out."
)
FOLDS_PRIVACY = (
    "Every fold trains on mostly the same rows with noise, and spends privacy: the epsilon of one run does not cover "
    "a cross-validation."
)


def is_private(config: Config) -> bool:
    """True if training adds noise, so that every simulation on the same rows spends privacy."""
    own = config.server.privacy if config.server else None
    labels = own is not None and (own.labels is not None or own.answers is not None)
    return config.federation.privacy is not None or labels
