"""Rate limit for events that others can cause: the first few unchanged, then periodic counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Listener = Callable[[Event], object]


@dataclass(frozen=True)
class Cap:
    """Rate limit of one kind of event.

    Args:
        first: events passed on unchanged.
        period: seconds until another one is allowed.
    """

    first: int
    period: float


_MEMBERS = Cap(100, 60.0)
_ROUNDS = Cap(1000, 1.0)

CAPS: Mapping[str, Cap] = {
    "refused": Cap(20, 60.0),  # caused by anyone who reaches the port
    # Caused by identified members: joining and leaving, failing, breaking the contract; at a party, by the server.
    **dict.fromkeys(
        ("join", "leave", "rejoin", "failed", "resume", "rollback", "begin", "server_away", "warning", "revocations",
         "finding", "checkpoint_failed", "abandoned", "partial_sum", "preparing", "aligned", "capture",
         "diverged", "back_off"),
        _MEMBERS,
    ),
    # Normally once per round and party.
    **dict.fromkeys(("late", "checkpoint"), _ROUNDS),
}  # fmt: skip
"""Limits by kind of event; other kinds are not caused from outside, or occur a few times per round that we open."""

_REASONS = 3  # distinct ones listed with a count
_ADDRESSES = 3
_CUT = 200  # characters of a reason in a count


@dataclass
class _Flow:
    left: float
    seen: float
    count: int = 0
    since: float = 0.0
    last: Event = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    addresses: list[str] = field(default_factory=list)


class Digest:
    """Passes events on, those in `CAPS` at a bounded rate; suppressed events are counted.

    Several events are reported as the last of them with `count`, `since` (seconds since 1970 of the first), `addresses`
    (a few), and the most frequent reasons in `reason`.

    Args:
        then: receives the events passed on.
        clock: seconds, of which only differences matter.
    """

    def __init__(self, then: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._then, self._clock = then, clock
        self._flows: dict[tuple[str, str], _Flow] = {}

    def __call__(self, event: Event) -> None:
        now = self._clock()
        for flow in [flow for flow in self._flows.values() if flow.count]:
            self._say_if_due(flow, now)
        cap = CAPS.get(event["kind"])
        if cap is None:
            if event["kind"] == "end":
                self.settle()
            self._then(event)
            return
        flow = self._flows.setdefault(_key(event), _Flow(float(cap.first), now))
        flow.left, flow.seen = min(float(cap.first), flow.left + (now - flow.seen) / cap.period), now
        if flow.count or flow.left < 1:
            self._hold(flow, event)
            self._say_if_due(flow, now)
            return
        flow.left -= 1
        self._then(event)

    def settle(self) -> None:
        """Passes on the counts of suppressed events."""
        for flow in [flow for flow in self._flows.values() if flow.count]:
            self._say(flow)

    def _hold(self, flow: _Flow, event: Event) -> None:
        flow.since = flow.since if flow.count else event["time"]
        flow.count, flow.last = flow.count + 1, event
        reason, address = str(event.get("reason", ""))[:_CUT], str(event.get("address", ""))
        if reason in flow.reasons or len(flow.reasons) < _REASONS:
            flow.reasons[reason] += 1
        if address and len(flow.addresses) < _ADDRESSES:
            flow.addresses.append(address)

    def _say_if_due(self, flow: _Flow, now: float) -> None:
        cap = CAPS[flow.last["kind"]]
        flow.left, flow.seen = min(float(cap.first), flow.left + (now - flow.seen) / cap.period), now
        if flow.left >= 1:
            self._say(flow)

    def _say(self, flow: _Flow) -> None:
        said = {**flow.last, "count": flow.count, "since": flow.since}
        if flow.addresses:
            said["addresses"] = flow.addresses
        if "reason" in said:
            said["reason"] = _in_words(flow)
        flow.left = max(flow.left - 1, 0.0)
        flow.count, flow.reasons, flow.addresses = 0, Counter(), []
        self._then(said)


def _key(event: Event) -> tuple[str, str]:
    """Key of an event's flow: strangers choose their names, so all events with an address share one."""
    return event["kind"], "" if "address" in event else str(event.get("party", ""))


def _in_words(flow: _Flow) -> str:
    reasons = "; ".join(f"{reason} ({count})" for reason, count in flow.reasons.most_common())
    others = flow.count - sum(flow.reasons.values())
    return f"{flow.count} more: {reasons}" + (f"; other reasons ({others})" if others else "")
