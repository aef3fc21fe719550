"""Every protocol by name. A new one is added here, in server/protocols and in client/protocols."""

from __future__ import annotations

from collections.abc import Mapping

from common.protocols import (
    c_vfl,
    centralized,
    fdml,
    fedbcd,
    fedvs,
    linear_admm,
    split,
    split_avg,
    vafl,
    vimadmm,
    vimadmm_j,
)
from common.protocols.contract import Contract

CONTRACTS: Mapping[str, Contract] = {
    contract.name: contract
    for contract in (
        split.CONTRACT,
        split_avg.CONTRACT,
        fedvs.CONTRACT,
        fedbcd.CONTRACT,
        fdml.CONTRACT,
        c_vfl.CONTRACT,
        vafl.CONTRACT,
        vimadmm.CONTRACT,
        vimadmm_j.CONTRACT,
        centralized.CONTRACT,
        linear_admm.CONTRACT,
    )
}
