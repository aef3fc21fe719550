"""Every protocol by name. A new one is added here, in server/protocols and in client/protocols."""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.common.contracts.contract import Contract
from colonnade.common.protocols import (
    agg_vfl,
    c_vfl,
    centralized,
    czofo,
    fdml,
    fedbcd,
    fedvs,
    linear_admm,
    local,
    split,
    split_avg,
    syn_zoo_vfl,
    vafl,
    vfedmh,
    vfl_afe,
    vimadmm,
    vimadmm_j,
    zoo_vfl,
)

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
        czofo.CONTRACT,
        zoo_vfl.CONTRACT,
        syn_zoo_vfl.CONTRACT,
        vfl_afe.CONTRACT,
        vimadmm.CONTRACT,
        vimadmm_j.CONTRACT,
        vfedmh.CONTRACT,
        centralized.CONTRACT,
        linear_admm.CONTRACT,
        agg_vfl.CONTRACT,
        local.CONTRACT,
    )
}
