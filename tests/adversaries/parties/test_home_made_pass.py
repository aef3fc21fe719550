"""A protocol side that makes its own `Released` or `MaskedTensor`: only protecting modules construct them.

Bounds: no cell.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from colonnade.client.privacy.egress import Egress
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ContractError
from colonnade.common.messaging.outgoing import MaskedTensor, Released, nothing
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.protocols.fedvs import Shares
from colonnade.common.protocols.split import Embedding
from tests.support.rooms import CODE

ROOT = Path(__file__).parents[3]
TYPES = {"Released", "MaskedTensor", "Outgoing"}
MAKERS = {
    "common/messaging/outgoing.py": {"Outgoing", "MaskedTensor"},
    "common/privacy/release.py": {"Released"},
    "common/privacy/gaussian.py": {"Released"},
    "common/privacy/rows.py": {"Released"},
    "common/privacy/codes.py": {"Released"},
    "common/crypto/sealing.py": {"MaskedTensor"},
    "client/training/sums.py": {"MaskedTensor"},
    "common/aggregation/masks.py": {"MaskedTensor"},
    "common/aggregation/lagrange.py": {"MaskedTensor"},
    "common/alignment/psi_member.py": {"MaskedTensor"},
    "client/alignment/matching.py": {"MaskedTensor"},  # lists that it seals, or has proved
    "server/alignment/reuse.py": {"MaskedTensor"},  # positions in a kept list, which the server sends
    # Its own list, lists that it has verified, and lists on their way to parties: the server has no egress.
    "server/alignment/relay.py": {"MaskedTensor"},
}
SOURCES = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]


def made(source: str) -> set[str]:
    """Types that the code could construct: called, passed to a call (`as_subclass`, `cast`), or subclassed."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found |= _named(node.func) | {name for each in (*node.args, *node.keywords) for name in _named(each)}
        elif isinstance(node, ast.ClassDef):
            found |= {name for base in node.bases for name in _named(base)}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            found |= _named(node.value)
    return found & TYPES


def _named(node: ast.AST) -> set[str]:
    if isinstance(node, ast.keyword):
        return _named(node.value)
    if isinstance(node, ast.Attribute):
        return {node.attr} | _named(node.value)
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    return {node.id} if isinstance(node, ast.Name) else set()


CHECKS = ("isinstance(value, MaskedTensor)", "isinstance(of, Released)", "isinstance(found.tensor, Released)")


def test_only_protecting_modules_construct_them() -> None:
    found = {}
    for path in SOURCES:
        home, source = str(path.relative_to(ROOT)), path.read_text()
        if home == "client/privacy/egress.py":
            for check in CHECKS:
                source = source.replace(check, "True")
        if any(name in source for name in TYPES) and (types := made(source)):
            found[home] = types
    assert found == MAKERS


@pytest.mark.parametrize(
    "source",
    [
        "Released(h, 'none', None)",
        "outgoing.MaskedTensor(h, 'sealed')",
        "h.as_subclass(Released)",
        "torch.Tensor._make_subclass(MaskedTensor, h)",
        "cast(Released, h)",
        "cast('Released', h)",
        "Released.__new__(Released, h, '', None)",
        "class Mine(Released): pass",
        "mine = outgoing.Released",
    ],
)
def test_the_walk_finds_every_way_to_make_one(source: str) -> None:
    assert made(source)


def test_a_released_tensor_of_another_privacy_stage_is_refused() -> None:
    """Also refuses one made by another session's stage, which paid for it."""
    passed: list[Item] = []
    egress, other = (Egress(passed.append, SERVER, release_clear, Ledger(None)) for _ in range(2))
    for strange in (Released(torch.ones(2, 4), "none", None), other.release(torch.ones(2, 4))):
        with pytest.raises(ContractError, match=r"Embedding.h: expected a tensor from ctx.release, got another"):
            egress(Embedding(1, strange))
    with pytest.raises(ContractError, match=r"Shares.boxes: expected a tensor from ctx.admit_masked, got another"):
        egress(Shares(1, 0, MaskedTensor(torch.zeros(2, 4, dtype=torch.uint8), "sealed")))
    assert passed == []


def test_an_empty_answer_is_empty() -> None:
    assert nothing(0, 4, dtype=torch.int32).shape == (0, 4)
    with pytest.raises(ValueError, match="has entries"):
        nothing(1, dtype=torch.int32)
