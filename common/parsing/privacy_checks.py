"""Checks of `federation.privacy` against the protocol and the rest of the agreed section."""

from __future__ import annotations

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.privacy import MECHANISMS, AnyPrivacyConfig, StepsConfig
from colonnade.common.contracts.exchange import Exchange
from colonnade.common.contracts.registry import CONTRACTS, imported_contracts
from colonnade.common.errors import ConfigError


def able(trait: str) -> str:
    """The protocols whose contract has this capability, for a hint."""
    exchange = hasattr(Exchange, trait)
    known = imported_contracts().items()
    return ", ".join(name for name, one in known if getattr(one.exchange if exchange else one, trait))


def check_privacy(federation: FederationConfig) -> None:
    """Rejects privacy settings that protect nothing, or that the protocol cannot keep. Raises ConfigError."""
    if federation.privacy is not None:
        _check_releases(federation, federation.privacy)
        _check_rows(federation, federation.privacy)
        if federation.privacy.steps is not None:
            _check_steps(federation, federation.privacy.steps)


def _check_releases(federation: FederationConfig, privacy: AnyPrivacyConfig) -> None:
    if privacy.evaluate == "clean" and not federation.benchmark:
        raise ConfigError(
            "federation.privacy.evaluate = clean: validation and test rows would leave unprotected",
            hint="leave it out; or, if the data hold no secrets, set federation.benchmark to true",
        )
    if privacy.evaluate == "none" and not federation.benchmark:
        raise ConfigError(
            "federation.privacy.evaluate = none: evaluations and predictions would know nothing of the parties' rows",
            hint="leave it out; for a measurement of what the parties add, set federation.benchmark to true",
        )
    if privacy.epsilon and federation.protocol.asynchronous:
        raise ConfigError(
            "federation.privacy.epsilon: parties that come when they like make as many releases as they like",
            hint="give noise_multiplier alone, and every party its policy.max_epsilon; or arrivals: false",
        )


def _check_rows(federation: FederationConfig, privacy: AnyPrivacyConfig) -> None:
    """Rejects row protection in protocols whose messages are not one value per row of the kind that is protected."""
    name, sends = federation.protocol.name, CONTRACTS[federation.protocol.name].exchange.sends
    if privacy.protects not in ("", sends):
        able = [known for known, one in imported_contracts().items() if one.exchange.sends == privacy.protects]
        others = " or ".join(each for each, one in MECHANISMS.items() if one.protects in ("", sends))
        raise ConfigError(
            f"federation.privacy.mechanism = {privacy.mechanism} with the protocol {name}: what its parties send is "
            f"not one {privacy.unit} a row",
            hint=f"take {'the protocol' if len(able) == 1 else 'one of'} {', '.join(able)}; or mechanism: {others}",
        )
    if privacy.rescale != "none" and federation.batch == 1:
        raise ConfigError(
            f"federation.batch = 1 with federation.privacy.rescale = {privacy.rescale}: one row has no distances",
            hint="give larger batches, or leave rescale out",
        )


def _check_steps(federation: FederationConfig, steps: StepsConfig) -> None:
    """Rejects noise on steps without per-row gradients."""
    name, where = federation.protocol.name, "federation.privacy.steps"
    if not CONTRACTS[name].exchange.gradients:
        hint = f"take one of {able('gradients')}"
        raise ConfigError(f"{where} with the protocol {name}: it steps otherwise", hint=hint)
    if federation.adjust.asked:
        raise ConfigError(
            f"{where} with federation.adjust: a row would pull at other rows, past what its own share is clipped to",
            hint="leave one of the two out",
        )
    if federation.protocol.head_name == "normed":
        raise ConfigError(
            f"{where} with federation.protocol.head: normed, in which rows meet", hint="take another head"
        )
    if steps.rate is not None:
        _check_secret_steps(federation)


def _check_secret_steps(federation: FederationConfig) -> None:
    """Rejects steps over secretly drawn rows in a protocol whose steps are on the announced batch."""
    name, where = federation.protocol.name, "federation.privacy.steps.rate"
    if not CONTRACTS[name].secret_steps:
        raise ConfigError(
            f"{where} with the protocol {name}: its steps are on the announced batch",
            hint=f"take one of {able('secret_steps')}; or leave rate and noise_multiplier out",
        )
    if (head := federation.protocol.head_name) != "linear":
        raise ConfigError(
            f"{where} with federation.protocol.head: {head}: steps over secretly drawn rows are through a linear head",
            hint="leave one of the two out",
        )
