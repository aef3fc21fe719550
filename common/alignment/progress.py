from __future__ import annotations

from collections.abc import Callable


def tenths(event: Callable[..., object]) -> Callable[[int, int], None]:
    def report(done: int, of: int) -> None:
        if 10 * done // of > 10 * (done - 1) // of:
            event(done=done, of=of)

    return report
