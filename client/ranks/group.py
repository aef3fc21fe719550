"""The process group of one party: its ranks, their address, and the test that all run the same configuration and code.

Ranks do not authenticate each other. Only tensors of shapes known at both ends travel, and a rank listens only on
loopback or a private address. Ranks that `colonnade client` has started on one machine (launcher/ranks.py) meet through
a file, others through torchrun's store.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import ipaddress
import math
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from colonnade.common.errors import ConfigError, EnvironmentFault

FILE = "COLONNADE_RANKS"
"""Environment variable: the file in which the ranks of one machine find each other, in a folder of this user alone."""

_INTERFACE = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_IDLE = datetime.timedelta(days=3650)  # a worker waits for the next batch as long as rank 0 lives
_NUMBERS = 16  # whole numbers before the rows of a letter: its size, the order, and numbers of the order
_ZEROS = [0] * (_NUMBERS - 2)
_HEAD = 2 * _NUMBERS  # their size; sizes count float32


@dataclass(frozen=True)
class World:
    """A process's place among those that torchrun has started; `local` is the number on this machine."""

    rank: int = 0
    size: int = 1
    local: int = 1

    @classmethod
    def of_environment(cls) -> World:
        size = _number("WORLD_SIZE", 1)
        return cls(_number("RANK", 0), size, _number("LOCAL_WORLD_SIZE", size)) if size > 1 else cls()


class Group:
    """Transport between rank 0 and the others. Shares of a batch are consecutive rows in rank order.

    Args:
        lost: called with the reason when another rank is gone or does not respond; does not return.
    """

    def __init__(self, world: World, lost: Callable[[str], None]) -> None:
        self.rank, self.size, self._lost = world.rank, world.size, lost
        self._after: dict[int, int] = {}
        self._last = 0
        self._letters: dict[int, Tensor] = {}

    def post(self, order: int, *numbers: int, rows: Tensor | None = None) -> Callable[[], None]:
        """Rank 0: begins to send the others an order with its numbers, and their shares of float32 rows if any.

        The result waits until it is sent. The letter's size is predicted from the last one of such an order; if it
        differs, a letter of the predicted size announces it, so most letters are one message.
        """
        most = 0 if rows is None else self._most(len(rows)) * rows[0].numel()
        size = _HEAD + most + most % 2
        letters = self._memory(size)
        letters.view(torch.int64)[:, :_NUMBERS] = torch.tensor([size, order, *numbers, *_ZEROS[len(numbers) :]])
        if rows is not None:
            for rank in range(1, self.size):
                part = rows[self.share(len(rows), rank)].reshape(-1)
                letters[rank, _HEAD : _HEAD + len(part)] = part
        if size != (foreseen := self._foreseen()):
            notices = self._memory(foreseen)
            notices[:, :_HEAD] = letters[:, :_HEAD]
            self._scatter(notices)()
        self._follow(order, size)
        return self._scatter(letters)

    def await_post(self) -> tuple[list[int], Tensor]:
        """Another rank: an order with its numbers, padded by zeros, and its padded share of rows, flat.

        The rows are valid until the next post.
        """
        size = self._foreseen()
        while True:
            letter = self._memory(size)[0]
            with self._reaching("rank 0"):
                dist.scatter(letter, src=0)
            said, order, *numbers = letter[:_HEAD].view(torch.int64).tolist()
            if said == size:
                self._follow(order, size)
                return [order, *numbers], letter[_HEAD:]
            size = said

    def broadcast(self, tensor: Tensor) -> Callable[[], None]:
        """Begins to copy rank 0's `tensor` to all; call the result to wait for it."""
        with self._reaching("another rank"):
            return self._waiting(dist.broadcast(tensor, 0, async_op=True), "another rank")

    def add_up(self, tensor: Tensor) -> None:
        """Replaces `tensor` by the sum of all ranks'."""
        with self._reaching("another rank"):
            dist.all_reduce(tensor)

    def _scatter(self, letters: Tensor) -> Callable[[], None]:
        *parts, own = letters
        with self._reaching("another rank"):
            return self._waiting(dist.scatter(own, parts, src=0, async_op=True), "another rank")

    def _foreseen(self) -> int:
        """Predicted size of the next letter, equal at all ranks."""
        return self._after.get(self._last, _HEAD)

    def _memory(self, size: int) -> Tensor:
        """A row per rank, and one for rank 0's own; one row elsewhere. Reused, as fresh memory costs more."""
        if size not in self._letters:
            self._letters[size] = torch.zeros(1 if self.rank else self.size + 1, size)
        return self._letters[size]

    def _follow(self, order: int, size: int) -> None:
        self._after[self._last], self._last = size, order

    def own(self, sent: Tensor, rows: int, shape: Sequence[int]) -> Tensor:
        """This rank's share of `rows` rows of a shape from what was posted."""
        own = self.share(rows, self.rank)
        return sent[: (own.stop - own.start) * math.prod(shape)].view(own.stop - own.start, *shape)

    def gather(self, into: Tensor, own: Tensor) -> None:
        """Rank 0: fills `into` with the shares of all ranks; `own` is its own."""
        most = self._most(len(into))
        alike = len(into) == most * self.size
        parts = [*into.chunk(self.size)] if alike else [into.new_empty(most, *into.shape[1:]) for _ in range(self.size)]
        with self._reaching("another rank"):
            dist.gather(_padded(own, most), parts, dst=0)
        if not alike:
            for share, part in zip(shares(len(into), self.size), parts, strict=True):
                into[share] = part[: share.stop - share.start]

    def give(self, own: Tensor, rows: int) -> None:
        """Another rank: sends its share of `rows` rows."""
        with self._reaching("rank 0"):
            dist.gather(_padded(own, self._most(rows)), dst=0)

    def _most(self, rows: int) -> int:
        return -(-rows // self.size)

    def share(self, rows: int, rank: int) -> slice:
        return shares(rows, self.size)[rank]

    def agree(self, parts: Mapping[str, bytes]) -> None:
        """Compares digests of what must be equal at all ranks. Raises ConfigError at rank 0 and at ranks that
        differ.
        """
        own = b"".join(hashlib.sha256(part).digest() for part in parts.values())
        mine = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        with self._reaching("another rank"):
            dist.all_gather(found, mine)
        for at, what in enumerate(parts):
            expected, *others = (bytes(each[32 * at : 32 * (at + 1)].tolist()) for each in found)
            differing = [rank for rank, other in enumerate(others, 1) if other != expected]
            if differing and self.rank in (0, *differing):
                who = f"rank {self.rank}" if self.rank else f"rank {', '.join(map(str, differing))}"
                raise ConfigError(
                    f"{who} has another {what} than rank 0: ranks with different configurations or code",
                    hint="give all ranks the same configuration file, code of the model, and versions of packages",
                )

    def _waiting(self, work: dist.Work | None, who: str) -> Callable[[], None]:
        assert work is not None  # None at ranks outside the group alone

        def wait() -> None:
            with self._reaching(who):
                work.wait()

        return wait

    @contextmanager
    def _reaching(self, who: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as gone:
            first = next(iter(str(gone).splitlines()), "")
            reason = "it does not respond" if "imed out" in first else "its connection was closed"
            self._lost(f"{who} is gone: {reason}")
            raise EnvironmentFault(f"{who} is gone: {reason}", hint="see what it printed above") from None


def _padded(rows: Tensor, most: int) -> Tensor:
    """The rows, padded to the largest share: all parts of a collective have one shape."""
    if len(rows) == most:
        return rows.contiguous()
    return torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])


def shares(rows: int, size: int) -> Sequence[slice]:
    """Consecutive shares of a batch, of nearly equal size, larger ones first."""
    ends = [0]
    for rank in range(size):
        ends.append(ends[-1] + rows // size + (rank < rows % size))
    return [slice(start, end) for start, end in pairwise(ends)]


@contextmanager
def joined(world: World, owner: str, interface: str, patience: float, lost: Callable[[str], None]) -> Iterator[Group]:
    """The group of all ranks, which have the same version of Colonnade and torch.

    Args:
        interface: `parties.NAME.interface`.
        patience: seconds for another rank's share of a batch.

    Raises ConfigError if this rank would listen on a public address, EnvironmentFault if other ranks do not come.
    """
    os.environ[_INTERFACE] = private_interface(owner, interface, several=world.local < world.size)
    place = os.environ.get(FILE, "")
    wait = datetime.timedelta(seconds=patience) if world.rank == 0 else _IDLE
    try:
        if place and world.local == world.size:
            where = f"file://{place}"
            dist.init_process_group("gloo", where, rank=world.rank, world_size=world.size, timeout=wait)
        else:
            dist.init_process_group("gloo", timeout=wait)
    except (RuntimeError, ValueError) as failed:
        first = next(iter(str(failed).splitlines()), type(failed).__name__)
        raise EnvironmentFault(
            f"{owner}: rank {world.rank} of {world.size} does not reach the others: {first}",
            hint="start all ranks by torchrun, with the same --rdzv-endpoint; or set workers, without torchrun",
        ) from None
    try:
        yield Group(world, lost)
    finally:
        dist.destroy_process_group()


def address_of(interface: str) -> str | None:
    """The IPv4 address of a network interface of this machine; None without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            found = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def private_interface(
    owner: str, configured: str, *, several: bool, address: Callable[[str], str | None] = address_of
) -> str:
    """The interface on which a rank listens; loopback by default. `several`: ranks run on several machines.

    Raises ConfigError if it is public or does not exist.
    """
    names = configured or os.environ.get(_INTERFACE, "")
    key = f"{owner}.interface" if configured or not names else _INTERFACE
    there = [name for _, name in socket.if_nameindex()]
    if not names and several:
        raise ConfigError(
            f"{key}: missing, and the ranks are on several machines",
            hint="name the network interface of their private network, such as eth1",
        )
    names = names or next(name for name in there if address(name) == "127.0.0.1")
    for name in names.split(","):
        if (found := address(name)) is None:
            raise ConfigError(f"{key} = {name}: it has no IPv4 address", hint=f"there are {', '.join(there)}")
        if ipaddress.ip_address(found).is_global:
            raise ConfigError(
                f"{key} = {name}: its address {found} is public, and anyone who reaches a rank is accepted as one",
                hint="take an interface of a private network that the ranks alone are in",
            )
    return names


def _number(variable: str, otherwise: int) -> int:
    found = os.environ.get(variable, "")
    return int(found) if found.isdecimal() else otherwise
