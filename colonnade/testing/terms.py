"""What a protocol's author states about its runs, for the suite to check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """Expected properties of a protocol's runs. The defaults fit a synchronous protocol of neural networks.

    Args:
        accuracy: the least test accuracy after `epochs` on the ten classes of the digits; chance is 0.1.
        epochs: of the run that has to learn, with batches of 128 rows.
        order_matters: True if a late message changes the result even if all parties are waited for, as in asynchronous
            protocols.
        needs_all: True if a round is skipped unless every party responds.
        unused: declared messages that no run under this configuration sends.
        fresh: kinds of messages with values that no seed determines, such as keys.
        free: names of dimensions whose sizes the contract bounds but does not fix.
        sets: changes of the configuration, as with `--set`: `"every_party.optimiser.lr=0.05"`.
        parties: number of parties, at least 3; one of them is the straggler.
    """

    accuracy: float = 0.5
    epochs: int = 10
    order_matters: bool = False
    needs_all: bool = False
    unused: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    parties: int = 4
