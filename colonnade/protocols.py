"""Typed settings of the built-in protocols: `colonnade.protocols.Split(embedding=32)`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.common.protocols.additive import Config as Additive
    from colonnade.common.protocols.agg_vfl import Config as AggVfl
    from colonnade.common.protocols.c_vfl import Config as CVfl
    from colonnade.common.protocols.centralized import Config as Centralized
    from colonnade.common.protocols.codes import Config as Codes
    from colonnade.common.protocols.czofo import Config as Czofo
    from colonnade.common.protocols.fdml import Config as Fdml
    from colonnade.common.protocols.fedbcd import Config as FedBcd
    from colonnade.common.protocols.fedvs import Config as FedVs
    from colonnade.common.protocols.hetero_lr import Config as HeteroLR
    from colonnade.common.protocols.linear_admm import Config as LinearAdmm
    from colonnade.common.protocols.local import Config as Local
    from colonnade.common.protocols.scorecard import Config as Scorecard
    from colonnade.common.protocols.secureboost import Config as SecureBoost
    from colonnade.common.protocols.split import Config as Split
    from colonnade.common.protocols.split_avg import Config as SplitAvg
    from colonnade.common.protocols.syn_zoo_vfl import Config as SynZooVfl
    from colonnade.common.protocols.vafl import Config as Vafl
    from colonnade.common.protocols.vfedmh import Config as VFedMh
    from colonnade.common.protocols.vfl_afe import Config as VflAfe
    from colonnade.common.protocols.vimadmm import Config as VimAdmm
    from colonnade.common.protocols.vimadmm_j import Config as VimAdmmJ
    from colonnade.common.protocols.zoo_vfl import Config as ZooVfl

__all__ = [
    "Additive", "AggVfl", "CVfl", "Centralized", "Codes", "Czofo", "Fdml", "FedBcd", "FedVs", "HeteroLR", "LinearAdmm",
    "Local", "Scorecard", "SecureBoost", "Split", "SplitAvg", "SynZooVfl", "VFedMh", "Vafl", "VflAfe", "VimAdmm",
    "VimAdmmJ", "ZooVfl",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports a protocol's settings at their first use."""
    if name in __all__:
        for protocol in import_module("colonnade.common.contracts.registry").NAMES:
            if protocol.replace("_", "") == name.lower():
                return import_module(f"colonnade.common.protocols.{protocol}").Config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
