"""The library of the curve secp256k1, which only alignments with proofs need."""

from __future__ import annotations

from typing import Any

from colonnade.common.errors import ConfigError


def point_class() -> Any:
    try:
        from coincurve import PublicKey  # noqa: PLC0415  # optional: only for proofs
    except ImportError:
        raise ConfigError(
            "federation.align_checks = proofs: coincurve is not installed", hint="pip install 'colonnade[proofs]'"
        ) from None
    return PublicKey
