"""The one way out of a party: every message passes here, is entered in the ledger, and only then leaves."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from common.conversation import Carrier, Item
from common.errors import ContractError, InputError
from common.message import Message, tensor_specs
from common.privacy.ledger import Ledger
from common.privacy.release import Release, Released
from common.traffic import Traffic


class Door:
    """A carrier that lets only released values through.

    Args:
        carry: the transport.
        to: who is at its other end.
        release: the party's privacy stage.
        ledger: the party's own record.
        left: counts what leaves, by kind, as `Traffic` does and in the bytes that the ledger names.
    """

    def __init__(
        self, carry: Carrier, to: str, release: Release, ledger: Ledger, left: dict[str, list[int]] | None = None
    ) -> None:
        self._carry, self._to, self._release, self._ledger = carry, to, release, ledger
        self._left = {} if left is None else left
        self._waiting: dict[int, Released] = {}

    def release(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Tensor:
        """Puts a function of private rows through the privacy stage and remembers the result.

        Only the returned tensor itself may then be sent, and once. `evaluation` says that the rows
        are validation or test rows, `rows` which they are, where each has a row of the matrix.
        """
        released = self._release(private, evaluation=evaluation, rows=rows)
        self._waiting[id(released.value)] = released
        return released.value

    def conceal(self, value: Tensor, how: str, of: Tensor | None = None) -> Tensor:
        """Lets values leave as they are that say nothing by themselves: sealed for others, or shares of a code.

        Args:
            value: what leaves.
            how: for the ledger.
            of: what `release` returned, if that is what is concealed: it was paid for, and is not sent itself.

        Raises:
            InputError: `of` did not come from `release`, or was concealed or sent before.
        """
        concealed = value.detach()
        mechanism, epsilon = how, None
        if of is not None:
            if (inner := self._redeem_tensor(of)) is None:
                raise InputError("what is concealed was not released", hint="conceal what ctx.release returned, once")
            mechanism, epsilon = f"{inner.mechanism}, {how}", inner.epsilon
        self._waiting[id(concealed)] = Released(concealed, mechanism, epsilon)
        return concealed

    def __call__(self, item: Item) -> None:
        """Sends an item; a message is charged first.

        Raises:
            ContractError: a field that must be released did not come from `release` or `conceal`.
        """
        if isinstance(item, Message):
            redeemed = {name: self._redeem(item, name) for name in _private_fields(type(item))}
            charges = list(redeemed.values())
            mechanism = " + ".join(sorted({charge.mechanism for charge in charges}))
            epsilon = charges[-1].epsilon if charges else None
            packed = {name: charge.packed for name, charge in redeemed.items() if charge.packed is not None}
            item = replace(item, packed=packed) if packed else item
            self._ledger.charge(item, self._to, mechanism, epsilon)
            Traffic.count(self._left, item)
        self._carry(item)

    def _redeem(self, message: Message, name: str) -> Released:
        released = self._redeem_tensor(getattr(message, name))
        if released is None:
            allowed = "a tensor from ctx.release or ctx.conceal"
            raise ContractError("this half", type(message).__name__, name, allowed, "another")
        return released

    def _redeem_tensor(self, value: Tensor) -> Released | None:
        """What is known of a tensor that came from here, once."""
        released = self._waiting.pop(id(value), None)
        return released if released is not None and released.value is value else None


def _private_fields(kind: type[Message]) -> list[str]:
    return [name for name, spec in tensor_specs(kind) if spec.released]
