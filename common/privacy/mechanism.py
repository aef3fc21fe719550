"""Choice of the mechanism in `federation.privacy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from colonnade.common.errors import ConfigError, nearest, shown
from colonnade.common.privacy.adaptive import AdaptivePrivacyConfig
from colonnade.common.privacy.codes.settings import DiscretePrivacyConfig
from colonnade.common.privacy.settings import NoiseConfig, PrivacyConfig


def _mechanism(value: Any) -> str:
    if not isinstance(value, Mapping | NoiseConfig | DiscretePrivacyConfig):
        raise ConfigError(
            f"federation.privacy{shown(value)}: expected keys and values", hint="{mechanism: gaussian, ..}"
        )
    name = str(value.get("mechanism", "gaussian") if isinstance(value, Mapping) else getattr(value, "mechanism", ""))
    if name not in _MECHANISMS:
        said = f"federation.privacy.mechanism = {name!r}: unknown mechanism{nearest(name, _MECHANISMS)}"
        raise ConfigError(said, hint=f"one of {', '.join(_MECHANISMS)}")
    return name


_MECHANISMS = ("gaussian", "adaptive", "discrete")

Privacy = Annotated[
    Annotated[PrivacyConfig, Tag("gaussian")]
    | Annotated[AdaptivePrivacyConfig, Tag("adaptive")]
    | Annotated[DiscretePrivacyConfig, Tag("discrete")],
    Discriminator(_mechanism),
]
"""`federation.privacy`, with the type given by its `mechanism`."""
