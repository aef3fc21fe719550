"""Checks of `federation.privacy` against the protocol and the rest of the agreed section."""

from __future__ import annotations

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.privacy import AdaptivePrivacyConfig, AnyPrivacyConfig, DiscretePrivacyConfig
from colonnade.common.contracts.registry import CONTRACTS, imported_contracts
from colonnade.common.errors import ConfigError


def able(trait: str) -> str:
    """The protocols whose contract has this capability, for a hint."""
    return ", ".join(name for name, contract in imported_contracts().items() if getattr(contract, trait))


def check_privacy(federation: FederationConfig) -> None:
    """Rejects privacy settings that protect nothing, or that the protocol cannot keep. Raises ConfigError."""
    if federation.privacy is not None:
        _check_releases(federation, federation.privacy)
        _check_rows(federation)


def _check_releases(federation: FederationConfig, privacy: AnyPrivacyConfig) -> None:
    if privacy.evaluate == "clean" and not federation.benchmark:
        raise ConfigError(
            "federation.privacy.evaluate = clean: validation and test rows would leave unprotected",
            hint="leave it out; or, where nobody's secrets are in the data, set federation.benchmark to true",
        )
    if privacy.evaluate == "none" and not federation.benchmark:
        raise ConfigError(
            "federation.privacy.evaluate = none: evaluations and predictions would know nothing of the parties' rows",
            hint="leave it out; for a measurement of what the parties add, set federation.benchmark to true",
        )
    if privacy.epsilon and getattr(federation.protocol, "arrivals", False):
        raise ConfigError(
            "federation.privacy.epsilon: parties that come when they like make as many releases as they like",
            hint="give noise_multiplier alone, and every party its policy.max_epsilon; or arrivals: false",
        )


def _check_rows(federation: FederationConfig) -> None:
    """Rejects row protection in protocols whose messages are not one embedding per row."""
    privacy, name = federation.privacy, federation.protocol.name
    if isinstance(privacy, DiscretePrivacyConfig) and CONTRACTS[name].predicts != "codes":
        raise ConfigError(
            f"federation.privacy.mechanism = discrete with the protocol {name}: what its parties send is not one code "
            "a row",
            hint="take the protocol codes; or mechanism: gaussian or adaptive",
        )
    if not isinstance(privacy, AdaptivePrivacyConfig):
        return
    if not CONTRACTS[name].embeddings:
        raise ConfigError(
            f"federation.privacy.mechanism = adaptive with the protocol {name}: what its parties send is not one "
            "embedding a row",
            hint=f"take one of {able('embeddings')}; or mechanism: gaussian",
        )
    _check_steps(federation, privacy)
    if privacy.rescale != "none" and federation.batch == 1:
        raise ConfigError(
            f"federation.batch = 1 with federation.privacy.rescale = {privacy.rescale}: one row has no distances",
            hint="give larger batches, or leave rescale out",
        )


def _check_steps(federation: FederationConfig, privacy: AdaptivePrivacyConfig) -> None:
    """Rejects noise on steps without per-row gradients."""
    name, where = federation.protocol.name, "federation.privacy.steps"
    if privacy.steps is None:
        return
    if not CONTRACTS[name].gradients:
        hint = f"take one of {able('gradients')}"
        raise ConfigError(f"{where} with the protocol {name}: it steps otherwise", hint=hint)
    if federation.adjust.asked:
        raise ConfigError(
            f"{where} with federation.adjust: a row would pull at other rows, past what its own share is clipped to",
            hint="leave one of the two out",
        )
    if getattr(getattr(federation.protocol, "head", None), "name", "") == "normed":
        raise ConfigError(
            f"{where} with federation.protocol.head: normed, in which rows meet", hint="take another head"
        )
    if privacy.steps.rate is not None:
        _check_secret_steps(federation)


def _check_secret_steps(federation: FederationConfig) -> None:
    """Rejects steps over secretly drawn rows in a protocol whose steps are on the announced batch."""
    name, where = federation.protocol.name, "federation.privacy.steps.rate"
    if not CONTRACTS[name].secret_steps:
        raise ConfigError(
            f"{where} with the protocol {name}: its steps are on the announced batch",
            hint=f"take one of {able('secret_steps')}; or leave rate and noise_multiplier out",
        )
    head = getattr(getattr(federation.protocol, "head", None), "name", "linear")
    if head != "linear":
        raise ConfigError(
            f"{where} with federation.protocol.head: {head}: steps over secretly drawn rows are through a linear head",
            hint="leave one of the two out",
        )
