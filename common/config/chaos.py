"""`chaos` of a member: faults that are injected into its process and its connection.

A party's `chaos` section is neither agreed nor sent. The same description drives real processes and the virtual clock
(common/conversation/chaos.py).

    chaos:
      delay: exp(0.5s)              # of responses: 0.5s, exp(MEAN), uniform(FROM, TO), fedvs
      delay: {Embedding: fedvs}     # of some kinds of messages only; other kinds do not wait behind them
      jitter: uniform(0s, 20ms)     # of all messages, both directions
      bandwidth: 300Mbit/s          # both directions
      computing: 1Gop/s             # on the virtual clock: operations a second
      drop: 0.1                     # of responses, or {KIND: share}
      pause: 10s@20                 # SIGSTOP for 10 s when round 20 opens
      crash: 30                     # SIGKILL when round 30 opens, once
      partition: 5s-9s              # nothing passes in these seconds of a session
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from colonnade.common.crypto.pki.names import TEMPLATE
from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_TIME = re.compile(rf"{_NUMBER} *(ms|s|min|h)")
_CALL = re.compile(r"(exp|uniform|fedvs) *(?:\((.*)\))?")
_BANDWIDTH = re.compile(rf"{_NUMBER} *([kMG]?)bit/s")
_RATE = re.compile(rf"{_NUMBER} *([kMGT]?)op/s")
_PAUSE = re.compile(r"(.+)@ *(\d+)")
_PARTITION = re.compile(r"(.+?)-(.+)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def seconds(text: str) -> float:
    """'0.5s', '20ms', '2min' or '1h' in seconds. Raises ValueError."""
    if (found := _TIME.fullmatch(text.strip())) is None:
        raise ValueError(f"{text!r} is no time: write 0.5s, 20ms, 2min or 1h")
    return float(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True)
class PatternIndex:
    """Input of the FedVS pattern: a party's index `number` of `of` parties.

    Args:
        batch: |B|, the rows of a party's response: in K segments, the K-th part of a batch.
    """

    number: int
    of: int
    batch: int = 1


@dataclass(frozen=True)
class Pattern:
    """A distribution of delays, in seconds.

    Args:
        name: constant, exp, uniform, fedvs or fedvs-shares.
        values: constant: (delay,); exp: (mean,); uniform: (from, to); fedvs: (scale,).
    """

    name: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        text = text.strip()
        if text.startswith("fedvs-shares"):
            inner = cls.parse(text.replace("fedvs-shares", "fedvs", 1))
            return cls("fedvs-shares", inner.values)
        call = _CALL.fullmatch(text)
        if call is None:
            return cls("constant", (seconds(text),))
        name, inside = call[1], [part for part in (call[2] or "").split(",") if part.strip()]
        if name == "fedvs" and len(inside) <= 1:
            scale = inside[0].strip() if inside else "1"
            if not re.fullmatch(_NUMBER, scale):
                raise ValueError(f"{text!r} is no delay: write fedvs, or fedvs(0.25) for a quarter of its times")
            return cls(name, (float(scale),))
        values = tuple(seconds(part) for part in inside)
        if len(values) != {"exp": 1, "uniform": 2}.get(name) or (name == "uniform" and values[0] > values[1]):
            raise ValueError(
                f"{text!r} is no delay: write 0.5s, exp(MEAN), uniform(FROM, TO) or fedvs, with times like 0.5s"
            )
        return cls(name, values)

    def draw(self, draws: random.Random, index: PatternIndex) -> float:
        match self.name:
            case "constant":
                return self.values[0]
            case "uniform":
                return draws.uniform(*self.values)
            case "exp":
                return draws.expovariate(1 / self.values[0]) if self.values[0] else 0.0
            case _:
                return draws.expovariate(1 / mean) if (mean := self._fedvs_mean(index)) else 0.0

    def _fedvs_mean(self, index: PatternIndex) -> float:
        """Mean delay of FedVS, Section 6.2: half the parties 0.1 s, the i-th of the others 2 + 4 i / N s.

        For model shares the same times (log^2 N) / |B|, where B is a batch of coded rows, so that the delay grows with
        K; the paper leaves the base of the logarithm open, here it is e.
        """
        i = index.number + 1 - math.ceil(index.of / 2)
        mean = 0.1 if i <= 0 else 2 + 4 * i / index.of
        factor = math.log(index.of) ** 2 / index.batch if self.name == "fedvs-shares" else 1.0
        return mean * factor * self.values[0]


@dataclass(frozen=True)
class Pause:
    seconds: float
    round: int


def _pattern(value: Any) -> str:
    text = f"{value}s" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    Pattern.parse(text)
    return text


def _patterns(value: Any) -> Any:
    return {kind: _pattern(text) for kind, text in value.items()} if isinstance(value, dict) else _pattern(value)


def bits_per_second(text: str) -> float:
    """'300Mbit/s' as a number; '' is no limit. Raises ValueError."""
    return _a_second(text, _BANDWIDTH, "bandwidth", "write 300Mbit/s, 10kbit/s or 1Gbit/s")


def operations_per_second(text: str) -> float:
    """'1Gop/s' as a number; '' is no limit. Raises ValueError."""
    return _a_second(text, _RATE, "rate of computing", "write 1Gop/s, 500Mop/s or 2.5Top/s")


def _a_second(text: str, form: re.Pattern[str], what: str, hint: str) -> float:
    if not text:
        return math.inf
    found = form.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no {what}: {hint}")
    return float(found[1]) * _PREFIX[found[2]]


def _rate(text: str) -> str:
    operations_per_second(text)
    return text


def _bandwidth(text: str) -> str:
    bits_per_second(text)
    return text


def parse_pause(text: str) -> Pause:
    """'10s@20': ten seconds when round 20 opens. Raises ValueError."""
    if (found := _PAUSE.fullmatch(text.strip())) is None:
        raise ValueError(f"{text!r} is no pause: write 10s@20 for ten seconds when round 20 opens")
    return Pause(seconds(found[1]), int(found[2]))


def parse_partition(text: str) -> tuple[float, float]:
    """'5s-9s' as begin and end in seconds. Raises ValueError."""
    found = _PARTITION.fullmatch(text.strip())
    if found is None or seconds(found[1]) >= seconds(found[2]):
        raise ValueError(f"{text!r} is no partition: write 5s-9s for the seconds of a session that it lasts")
    return seconds(found[1]), seconds(found[2])


def _all(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        texts = (value,) if isinstance(value, str) else tuple(value)
        for text in texts:
            parse(text)
        return texts

    return check


Share = Annotated[float, Field(ge=0, lt=1)]


UNUSED_RATE = "chaos.computing has no effect: a process computes as fast as it can; `colonnade simulate` follows it"


class ComputingConfig(Section):
    """The time that a member's computing takes on the virtual clock. In a process it takes as long as it takes."""

    computing: Annotated[str, AfterValidator(_rate)] = Field(
        default="",
        description="operations a second on the virtual clock: 1Gop/s, 500Mop/s; empty: computing takes no time",
    )


class ChaosConfig(ComputingConfig):
    """Faults that are injected into a party's process and connection."""

    delay: Annotated[str | dict[str, str], BeforeValidator(_patterns)] = Field(
        default="0s",
        description="of responses: a time (0.5s, 20ms), exp(MEAN), uniform(FROM, TO) or fedvs; or {KIND: DELAY}",
    )
    jitter: Annotated[str, BeforeValidator(_pattern)] = Field(
        default="0s", description="delay of every message, in both directions; written as `delay`"
    )
    bandwidth: Annotated[str, AfterValidator(_bandwidth)] = Field(
        default="", description="of the connection in both directions: 300Mbit/s, 10kbit/s; empty: no limit"
    )
    drop: Share | dict[str, Share] = Field(
        default=0.0, description="share of responses that are lost; or {KIND: SHARE}"
    )
    pause: Annotated[tuple[str, ...], BeforeValidator(_all(parse_pause))] = Field(
        default=(), description="10s@20 pauses the process for 10 s when round 20 opens; one, or a list"
    )
    crash: int | None = Field(default=None, ge=1, description="round at whose opening the process is killed, once")
    partition: Annotated[tuple[str, ...], BeforeValidator(_all(parse_partition))] = Field(
        default=(), description="5s-9s stops all messages in these seconds of a session; one, or a list"
    )

    def kinds(self) -> set[str]:
        """The kinds of messages that it names."""
        return {kind for named in (self.delay, self.drop) if isinstance(named, dict) for kind in named}


def read_chaos(texts: tuple[str, ...]) -> tuple[str, ...]:
    """`--chaos 'NAME: KEY=VALUE, ...'` as overrides of the configuration; NAME may be `every_party`. Raises
    ConfigError.
    """
    sets: list[str] = []
    for text in texts:
        name, colon, rest = text.partition(":")
        faults = [part.strip() for part in re.split(r",(?![^(]*\))", rest) if part.strip()]
        if not colon or not name.strip() or not faults or not all("=" in fault for fault in faults):
            raise ConfigError(f"--chaos {text!r}: expected NAME: KEY=VALUE, ...", hint="'bank2: delay=exp(0.5s)'")
        keys = [fault.partition("=")[0].strip() for fault in faults]
        if twice := next((key for at, key in enumerate(keys) if key in keys[:at]), ""):
            raise ConfigError(f"--chaos {text!r}: {twice} is given twice", hint="give each fault once")
        where = TEMPLATE if name.strip() == TEMPLATE else f"parties.{name.strip()}"
        sets += [f"{where}.chaos.{fault}" for fault in faults]
    return tuple(sets)
