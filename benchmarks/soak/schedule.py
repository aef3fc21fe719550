"""The schedule of troubles: their kinds, victims and durations, from a seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SERVER = "server"
PARTIES = ("party1", "party2", "party3", "party4")
MEMBERS = (SERVER, *PARTIES)

BRIEF, LONG = (0.5, 5.0), (2.0, 30.0)  # seconds
SHORT_OF_DISK = "party1", SERVER  # their folders are on file systems of their own
OFTEN_RESTARTED = ("party1", "party2")
STRANGERS = ("silent", "plain", "garbage", "foreign", "revoked", "hellos")

# Kinds in which the server, party3 and party4 keep their processes, so that growth shows over many minutes.
CALM: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "kill": (OFTEN_RESTARTED, BRIEF),
    "stop": (OFTEN_RESTARTED, BRIEF),
    "freeze": (OFTEN_RESTARTED, LONG),
    "cut": (PARTIES, (0.0, 0.0)),
    "hold": (PARTIES, LONG),
    "close": (PARTIES, (1.0, 15.0)),
    "list": ((SERVER,), (3.0, 14.0)),
    **dict.fromkeys(STRANGERS, ((SERVER,), (4.0, 10.0))),
}
HARD: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "kill": ((SERVER,), BRIEF),
    "stop": ((SERVER,), BRIEF),
    "freeze": ((SERVER,), (2.0, 25.0)),
    "full": ((SERVER,), (5.0, 15.0)),
    "full party": (("party1",), (5.0, 15.0)),  # ends the run at all members, as documented
    "kill party": (("party3", "party4"), BRIEF),
    "kill all": (MEMBERS, BRIEF),
    "renew": (PARTIES, (0.0, 0.0)),
    "revoke": (PARTIES, (3.0, 6.0)),
}


@dataclass(frozen=True)
class Trouble:
    kind: str
    members: tuple[str, ...]
    seconds: float
    pause: float

    def __str__(self) -> str:
        who = "all" if len(self.members) > 1 else self.members[0]
        return f"{self.kind} {who}" + (f" {self.seconds:.1f} s" if self.seconds else "")


def troubles(seed: int, minutes: float) -> Iterator[Trouble]:
    """Endless troubles, in chapters: calm ones in random order, then hard ones in random order.

    Args:
        minutes: of the soak. Up to ten minutes calm and hard ones are mixed; longer soaks have longer chapters.
    """
    draws = random.Random(seed)
    repeats = 1 if minutes <= 10 else 2 if minutes <= 30 else 4
    while True:
        calm = [_draw(draws, kind, *CALM[kind]) for kind in CALM for _ in range(repeats)]
        hard = [_draw(draws, kind, *HARD[kind]) for kind in HARD]
        draws.shuffle(calm)
        draws.shuffle(hard)
        both = calm + hard
        if repeats == 1:
            draws.shuffle(both)
        yield from both


def _draw(draws: random.Random, kind: str, members: tuple[str, ...], seconds: tuple[float, float]) -> Trouble:
    victims = members if kind == "kill all" else (draws.choice(members),)
    return Trouble(kind, victims, round(draws.uniform(*seconds), 1), round(draws.uniform(3.0, 9.0), 1))
