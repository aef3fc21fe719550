"""The draws of a member's own, as its run has begun: secret, or public."""

from __future__ import annotations

from colonnade.common.config.federation import FederationConfig
from colonnade.common.data.draws import AgreedDraws, Draws, SecretDraws


def own_draws(federation: FederationConfig, member: str, secret: bytes | None = None) -> Draws:
    """What a member draws for itself.

    Args:
        federation: the agreed section.
        member: a party, or the server.
        secret: the member's; None where its start is public, or one process holds the data of all members.
    """
    if secret is None:
        return AgreedDraws(federation.seed, federation.names, member)
    return SecretDraws(secret, member)
