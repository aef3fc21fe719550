"""`federation.protocol`: the keys common to all protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from colonnade.common.config.optimisers import AdamWConfig, OptimiserConfig
from colonnade.common.section import Section

PLAIN = AdamWConfig(lr=2e-3, weight_decay=0.1)  # where every exchange is one step

INTERACTING: Mapping[str, Any] = {"name": "mlp", "hidden": 128, "dropout": 0}
"""A head for interactions between columns of several parties; a linear head adds up the parties' contributions."""

SMALL = AdamWConfig(lr=1e-3, weight_decay=0.1)  # for exchanges of many steps, and for heads on a sum of embeddings

LARGE = AdamWConfig(lr=4e-3, weight_decay=0.1)
"""For bottom models whose embeddings are summed: they share one width and learn more slowly."""


@dataclass(frozen=True)
class Defaults:
    """Local settings for keys that a member's section leaves out. docs/defaults.md says how they were chosen.

    Args:
        own_head: optimiser of a party's own head.
        model: a party's bottom model, as in YAML.
        joint: the server's head, likewise.
        of_numbers: factor of all rates in a regression: gradients of the squared loss are unbounded, and small tables
            are learned quickly.
    """

    optimiser: OptimiserConfig = PLAIN
    head: OptimiserConfig = PLAIN
    own_head: OptimiserConfig = PLAIN
    model: Mapping[str, Any] = field(default_factory=lambda: {"name": "mlp"})
    joint: Mapping[str, Any] = field(default_factory=lambda: {"name": "linear"})
    of_numbers: float = 0.3


def for_task(defaults: Defaults, task: str) -> Defaults:
    """Lowers the learning rates in a regression."""
    if task != "regression":
        return defaults

    def slower(optimiser: OptimiserConfig) -> OptimiserConfig:
        return optimiser.model_copy(update={"lr": float(f"{defaults.of_numbers * optimiser.lr:.3g}")})

    rates: dict[str, Any] = {name: slower(getattr(defaults, name)) for name in ("optimiser", "head", "own_head")}
    return replace(defaults, **rates)


class ProtocolConfig(Section):
    """Base of every protocol's config: its name, which selects the protocol, and properties that other code reads.

    The properties read keys that several protocols share; a protocol with other keys overrides them. Keys may be
    properties too.

    Attributes:
        defaults: for the members' sections with this protocol.
        active: True if the server holds columns of its own (`server.active`), as the active party.
        optimisers: which are used: a party's, that of a party's own head, the server's.
        matrix: True if a party's own head is one matrix, so that its section `head` is not used.
        few_rounds: True if a run of less than a hundred rounds is usual.
        full_batch: True if a round learns from all training rows, so that it is an epoch.
        converges: True if the server may end the run where another round would gain nothing.
        typed: True if parties learn from their tables before these are encoded, `ctx.table`.
        whole: True if a party computes with all rows of its encoded table at once instead of batches.
        monotone: True if a party can say along which columns scores only rise or fall (`parties.NAME.monotone`).
        weighted: True if the loss may be Poisson's, and rows may have weights (`server.labels.weight`).
        cards: True for a scorecard: labels are counted without noise, and a party may configure bins.
        ranks: True if a party computes its bottom model only through `ctx.backprop`, so that it may have several
            processes.
    """

    defaults: ClassVar[Defaults] = Defaults()
    active: ClassVar[bool] = False
    optimisers: ClassVar[frozenset[str]] = frozenset({"party", "server"})
    matrix: ClassVar[bool] = False
    few_rounds: ClassVar[bool] = False
    full_batch: ClassVar[bool] = False
    converges: ClassVar[bool] = False
    typed: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    monotone: ClassVar[bool] = False
    weighted: ClassVar[bool] = False
    cards: ClassVar[bool] = False
    ranks: ClassVar[bool] = False

    name: str = Field(description="the protocol, which decides the other keys of this section")

    @property
    def asynchronous(self) -> bool:
        """True if parties take turns at their own pace (key `arrivals`)."""
        return bool(self._key("arrivals", False))

    @property
    def blinded(self) -> bool:
        """True if the server learns only blinded sums over the parties (key `aggregate`)."""
        return bool(self._key("aggregate", "clear") == "blinded")

    @property
    def cut_width(self) -> int | None:
        """Width of every party's embedding (key `embedding`); None without one."""
        found: int | None = self._key("embedding", None)
        return found

    @property
    def head_name(self) -> str:
        """Kind of the agreed head (key `head`); "linear" without one."""
        return str(getattr(self._key("head", None), "name", "linear"))

    @property
    def penalty(self) -> float | None:
        """ADMM's rho (key `rho`); None without z."""
        found: float | None = self._key("rho", None)
        return found

    @property
    def steps_key(self) -> str:
        """The key of the number of steps that a party takes after one release: `tau` or `local_steps`; "" without."""
        return next((key for key in ("tau", "local_steps") if key in type(self).model_fields), "")

    @property
    def local_steps_taken(self) -> int:
        """Most steps that a party takes after one release: `tau` or `local_steps`; 1 without."""
        return int(self._key("tau", self._key("local_steps", 1)))

    @property
    def encoder_draws(self) -> tuple[int, int]:
        """Steps of the training of linear encoders, and rows expected in a step: `steps`, `drawn`; 1 without."""
        return int(self._key("steps", 1)), int(self._key("drawn", 1))

    def _key(self, key: str, otherwise: Any) -> Any:
        return getattr(self, key, otherwise)  # also of a property: steps that it names must be accounted for

    def coded_batch(self, batch: int, parties: int) -> int:  # noqa: ARG002
        """Rows of a party's response: a batch, or fewer with coded rows."""
        return batch

    def settled(self, task: str) -> Self:  # noqa: ARG002
        """Fills in the defaults that depend on `federation.task`."""
        return self

    def with_default(self, key: str, value: Any) -> Self:
        """Sets a key that was left out."""
        if key in self.model_fields_set:
            return self
        made = self.model_copy(update={key: value})
        made.model_fields_set.discard(key)  # it is still left out, for a copy with another task
        return made

    def model_post_init(self, _context: Any) -> None:
        """Marks the name as set, so that a dump of the set keys includes it."""
        self.model_fields_set.add("name")


Missing = Annotated[
    Literal["zero", "last", "skip"],
    Field(description="replacement for a party that did not answer: zeros, its last value, or skip the round"),
]

Damping = Literal["parties", "none"]  # damping of steps that all parties take at once: divided by their number, or none


def damping_factor(damping: Damping, parties: int) -> float:
    """D, which multiplies local penalties and divides remainders."""
    return float(parties) if damping == "parties" else 1.0
