"""Settings that help a run which has diverged, as words and as a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.config.protocol import for_task
from colonnade.common.crypto.pki.names import SERVER

_SHARE = 3  # a third of a learning rate, and of the local steps
_NAMED = 3  # parties with a setting each


def advice(federation: FederationConfig, members: Sequence[str], sound: int) -> str:
    """The settings without their values, which other members do not know.

    Args:
        members: those that diverged first.
        sound: the round to go back to, 0 if there is no sound checkpoint.
    """
    keys = [_rate_key(name) for name in members[:_NAMED]]
    steps = _steps(federation)
    also = f", or federation.protocol.{steps[0]} to {steps[1]} at every member" if steps else ""
    whence = f"the checkpoint of round {sound}, which --resume takes" if sound else "the beginning, also with --resume"
    beside = f" (the defaults of {federation.protocol.name}: {_defaults(federation)})"
    return f"lower {' and '.join(keys)} to a third{beside}{also}; all members then go on from {whence}"


def command(config: Config, members: Sequence[str], sound: int, folder: Path, how: str) -> str:
    """The command that goes on from the sound checkpoint with a third of the learning rates, in a sentence."""
    sets = " ".join(f"--set {setting}" for setting in rates(config, members))
    steps = _steps(config.federation)
    instead = f"  (or, instead of the rates, --set federation.protocol.{steps[0]}={steps[1]})" if steps else ""
    whence = f"from the checkpoint of round {sound}" if sound else "from the beginning, as no checkpoint is sound,"
    usual = f"; the defaults of {config.federation.protocol.name} are {_defaults(config.federation)}"
    return (
        f"go on {whence} with lower rates{usual}: colonnade {how} --resume {shlex.quote(str(folder))} {sets}{instead}"
    )


def rates(config: Config, members: Sequence[str]) -> Iterator[str]:
    """KEY=VALUE of a third of the members' learning rates; of all parties with an equal one by one key."""
    parties = [name for name in members if name in config.parties]
    every = {getattr(party.optimiser, "lr", 0.0) for party in config.parties.values()}
    if len(parties) == len(config.parties) > 1 and len(every) == 1:
        yield f"every_party.optimiser.lr={_third(every.pop())}"
    else:
        yield from (f"{_rate_key(name)}={_third(config.parties[name].optimiser.lr)}" for name in parties)
    if (SERVER in members or not parties) and config.server is not None:
        yield f"{_rate_key(SERVER)}={_third(config.server.optimiser.lr)}"


def _rate_key(member: str) -> str:
    return "server.optimiser.lr" if member == SERVER else f"parties.{member}.optimiser.lr"


def _third(rate: float) -> str:
    return f"{rate / _SHARE:.3g}"


def _defaults(federation: FederationConfig) -> str:
    """The protocol's default rates: a third of one that is far above them is still too high."""
    defaults = for_task(federation.protocol.defaults, federation.task)
    party, head = (f"{one.name} with lr {getattr(one, 'lr', 0.0):g}" for one in (defaults.optimiser, defaults.head))
    return f"{party} at all members" if party == head else f"{party} at a party, {head} at the server"


def _steps(federation: FederationConfig) -> tuple[str, int] | None:
    """Name and a third of the local steps, where a run may change them."""
    steps, key = federation.protocol.local_steps_taken, federation.protocol.steps_key
    if not key or steps == 1 or federation.privacy is not None:
        return None
    return key, max(1, round(steps / _SHARE))
