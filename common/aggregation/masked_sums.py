"""Masked sums over the parties: agreed settings, and checks of them.

    for each round t:
      0   server     S, the parties over whose values this round sums              -> every party in S
          party k    unless S can only be all: confirms S to all others in S       -> server, which relays it
      1   party k    [v_k] = v_k + r_k, words modulo 2^b, of a batch or a block, and of a line of zeros    -> server
      2   server     sum of [v_k] over S, in which the masks r_k cancel: the last line is zero

Masks are bound to what each party itself was asked for (common/aggregation/subject.py): if two parties of S were
asked for different rows, the masks do not cancel, the sum is noise, and its last line is not zero.

If a party in S does not respond there is no sum: the round is abandoned, and the next one, with other rows, uses a
smaller set. With `federation.blinding.recovery` the words have double masks, and the sum is over those whose words
arrived (common/aggregation/recovery.py). common/aggregation/summed_sets.py ensures that a round is never
summed over two sets.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from colonnade.common.aggregation.integers import RingSize
from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import ConfigError, InputError

Summing = Annotated[
    Literal["clear", "blinded"],
    Field(
        description="blinded: the server is sent the sum over all parties and no party's own value; columns can be "
        "estimated from sums too"
    ),
]


def smallest_set(federation: FederationConfig) -> int:
    """Minimum parties in a sum: all, unless a round may continue without some."""
    return federation.fewest_summed


def confirmed(federation: FederationConfig) -> bool:
    """True if parties confirm the set of a round to each other: sets other than all parties are possible."""
    return federation.fewest_summed < len(federation.parties)


def check_smallest_set(federation: FederationConfig) -> None:
    """Rejects an agreed section that allows sums over too few parties. Raises ConfigError."""
    parties, least, need = len(federation.parties), federation.blinding.least, federation.quorum.need
    if parties < least:
        raise ConfigError(
            f"federation.blinding.least = {least}: there are {parties} parties whose values could be summed",
            hint="a sum over few parties hides little: take more parties, or set it to 2 and read docs/sums.md",
        )
    if need != "all" and need < least:
        raise ConfigError(
            f"federation.quorum.need = {need}: a sum is of at least {least} parties",
            hint=f"set federation.quorum to {{need: {least}, grace: SECONDS}} or more, or to wait",
        )


def check_blinded(federation: FederationConfig) -> None:
    """Rejects an agreed section that is incompatible with blinded sums. Raises ConfigError."""
    check_smallest_set(federation)
    parties, need = len(federation.parties), federation.quorum.need
    if need != "all" and need < parties and not federation.quorum.grace:
        raise ConfigError(
            f"federation.quorum.need = {need} without grace: a round without a party of its set has no sum",
            hint=f"give the others time: {{need: {need}, grace: SECONDS}}",
        )
    if 2 * (fewest := smallest_set(federation)) <= parties:
        raise ConfigError(
            f"federation.quorum.need = {need}: sums of {fewest} of {parties} parties: the server could split the "
            "parties into two sets, each of which confirms its own",
            hint=f"more than half: {{need: {parties // 2 + 1}, grace: SECONDS}} or more, or wait",
        )
    _check_recovery(federation)
    if said := federation.compress.of_parties:
        raise ConfigError(
            f"federation.compress.{said}: masked words cannot be sent in fewer bits",
            hint="leave it out",
        )
    if federation.participation < 1:
        raise ConfigError(
            f"federation.participation = {federation.participation:g}: a blinded sum is over all present parties",
            hint="leave it out",
        )
    try:
        RingSize(federation.blinding.bound, parties, federation.blinding.bits)
    except InputError as wrong:
        raise ConfigError(f"federation.blinding: {wrong}", hint=wrong.hint) from None
    _check_once(federation)


def _check_recovery(federation: FederationConfig) -> None:
    """Rejects recovery where no party can be missing, or where a lying server could open both keys of a party."""
    recovery, parties, need = federation.blinding.recovery, len(federation.parties), federation.quorum.need
    threshold, where = federation.blinding.threshold(parties), f"federation.blinding.recovery = {recovery}"
    if not threshold:
        return
    least = max(threshold, federation.blinding.least)
    if least >= parties:
        raise ConfigError(
            f"{where}: of {parties} parties {least} are needed for a sum, so that none can be missing",
            hint="take more parties, or recovery: none and quorum: wait",
        )
    if need == "all" or not threshold <= need < parties:
        raise ConfigError(
            f"{where} with federation.quorum.need = {need}: a sum is over {least} to {parties - 1} parties or all",
            hint=f"set federation.quorum to {{need: {least}, grace: SECONDS}} or more, or leave recovery out to wait",
        )
    once = None if federation.privacy is None else federation.privacy.once
    if once is not None and 2 * threshold <= parties + once.colluders:
        raise ConfigError(
            f"{where} with federation.privacy.once.colluders = {once.colluders}: {threshold} of {parties} parties open "
            f"a key, so that {once.colluders} who lie with the server could have both keys of a party",
            hint="take recovery: colluding and fewer than a third of the parties as colluders, or recovery: none",
        )


def _check_once(federation: FederationConfig) -> None:
    """Rejects shared noise (`privacy.once`) where a sum may have less noise than promised."""
    if federation.privacy is None or (once := federation.privacy.once) is None:
        return
    fewest, where = federation.fewest_summed, "federation.privacy.once"
    present = once.present or fewest
    if present > fewest:
        raise ConfigError(
            f"{where}.present = {present}: a sum may be of {fewest} parties, and would have less noise than promised",
            hint=f"leave present out, or set federation.quorum to {{need: {present}, grace: SECONDS}}",
        )
    if once.colluders >= present:
        raise ConfigError(
            f"{where}.colluders = {once.colluders}: of the {present} parties of a sum none is left whose noise counts",
            hint="give fewer colluders than parties present; noise of every party by itself (without once) holds "
            "against all others together",
        )
    if federation.privacy.seeded and not federation.benchmark:
        raise ConfigError(
            f"{where} with federation.privacy.seeded: every member could subtract all shares of the noise",
            hint="leave seeded out; or, if the data hold no secrets, set federation.benchmark to true",
        )
    if (rescale := getattr(federation.privacy, "rescale", "none")) != "none":
        raise ConfigError(
            f"{where} with federation.privacy.rescale = {rescale}: what a party has released has only a share of the "
            "noise, and no factor may follow from it",
            hint="leave one of the two out",
        )
