"""Computing on the virtual clock: a member's operations take time at the rate of its `chaos.computing`.

Operations are counted where PyTorch executes them: a matrix product (m, k) x (k, n) is 2 m k n, a convolution likewise,
and everything else one for each element of its result; views and empty tensors cost nothing. The count follows from
shapes, so it is the same on every machine. Evaluations, encryption, and the checks of arriving messages are not
counted.

A member computes one thing after another: work begins when its inputs are there and earlier work is done, and a message
leaves when earlier work is done.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from colonnade.common.config.chaos import operations_per_second
from colonnade.common.config.members import Config
from colonnade.common.conversation.chaos import NarrowLine
from colonnade.common.conversation.conversation import SERVER, Carrier
from colonnade.common.conversation.parcels import Item
from colonnade.common.messaging.message import Message, snapshot
from colonnade.common.run.phases import evaluating

_LEFT_MATRIX = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "mv": 0, "addmv": 1, "dot": 0}
_FREE = (
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "detach",
    "alias",
    "lift_fresh",
    "_unsafe_view",
)
_AT_WORK: ContextVar[Bench | None] = ContextVar("at_work", default=None)


class Bench:
    """One member's computing.

    Args:
        rate: operations a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0  # when the work before `_since` is done
        self._pending, self._since = 0, 0.0  # operations begun at or after `_since`

    def add(self, operations: int) -> None:
        now = asyncio.get_running_loop().time()
        if now > self._since:
            self._settle()
            self._since = now
        self._pending += operations

    def free(self, loop: asyncio.AbstractEventLoop) -> float:
        """The time when all work is done, in seconds of the loop's clock; now if there is none."""
        self._settle()
        return max(self._free, loop.time())

    def outward(self, carry: Carrier) -> Carrier:
        """Wraps `carry` for sent items: an item leaves when earlier work is done."""
        line = NarrowLine()

        def send(item: Item) -> None:
            loop = asyncio.get_running_loop()
            ready = self.free(loop)
            if ready <= loop.time() and not line.waiting:
                carry(item)
                return
            line.enter(loop, ready, carry, snapshot(item) if isinstance(item, Message) else item)

        return send

    def _settle(self) -> None:
        if self._pending:
            self._free = max(self._free, self._since) + self._pending / self._rate
            self._pending = 0


class Benches:
    def __init__(self, config: Config) -> None:
        sections: Mapping[str, Any] = (
            config.parties if config.server is None else {SERVER: config.server, **config.parties}
        )
        rates = {name: operations_per_second(section.chaos.computing) for name, section in sections.items()}
        self._loop: asyncio.AbstractEventLoop  # once the run has begun
        self._of = {name: Bench(rate) for name, rate in rates.items() if math.isfinite(rate)}

    async def work(self, name: str, side: Awaitable[None]) -> None:
        _AT_WORK.set(self._of.get(name))
        await side

    def counting(self) -> AbstractContextManager[object]:
        return _counted() if self._of else nullcontext()

    def outward(self, name: str, carry: Carrier) -> Carrier:
        return self._of[name].outward(carry) if name in self._of else carry

    def clock(self) -> float:
        """The time when the server's work is done, on the clock of the running or the last loop."""
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        return self._of[SERVER].free(self._loop) if SERVER in self._of else self._loop.time()

    async def rest(self) -> None:
        """Waits until the server's work is done, so that a round's time limits start then."""
        if SERVER in self._of:
            await asyncio.sleep(self.clock() - asyncio.get_running_loop().time())


@contextmanager
def _counted() -> Iterator[None]:
    with _Operations():  # type: ignore[no-untyped-call]
        yield


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds the operations of every call to the bench of the member whose task makes it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        bench = _AT_WORK.get()
        # Callbacks of the loop, which deliver messages, run in the context of their sender.
        if bench is not None and not evaluating() and asyncio.current_task() is not None:
            bench.add(_operations(func, args, kwargs or {}, found))
        return found


def _operations(func: Any, args: Any, kwargs: Any, found: Any) -> int:
    name = func._schema.name.removeprefix("aten::").rstrip("_")
    if (left := _LEFT_MATRIX.get(name)) is not None:
        return 2 * _elements(found) * int(args[left].shape[-1])
    if (convolution := flop_registry.get(func._overloadpacket)) is not None:
        return int(convolution(*args, **kwargs, out_val=found))
    if func.is_view or name in _FREE:
        return 0
    return _elements(found) or _elements(args[:1])  # an in-place operation on several tensors has no result


def _elements(found: Any) -> int:
    if isinstance(found, Tensor):
        return found.numel()
    return sum(map(_elements, found)) if isinstance(found, list | tuple) else 0
