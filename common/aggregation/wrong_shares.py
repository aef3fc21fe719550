"""Naming of parties whose shares of keys are wrong: more shares than the threshold form an error-correcting code.

All shares of one secret are values of one polynomial of degree below t. Of m shares, up to (m - t) / 2 wrong ones are
located (Berlekamp and Welch: Q(x) = y E(x) at every share, with E monic and zero at the wrong ones, deg Q < t + deg E);
up to m - t are noticed. A share is wrong because its owner dealt it so or its holder opened it so. A single liar is
among those named, and is named alone if it lies about two or more shares that can be located. Two parties that lie
together can put the blame for a third party's share on its owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.aggregation.integers import lagrange_matrix
from colonnade.common.aggregation.shamir import Sharing
from colonnade.common.crypto.uniform import secure_elements
from colonnade.common.errors import ContractError

_Elements = NDArray[np.int64]


def check_shares(sharing: Sharing, places: Mapping[str, int], owners: Sequence[str], shares: Tensor) -> None:
    """Refuses shares that no polynomial explains, and names the parties that can be the cause.

    Args:
        places: of the holders, 0 .. n - 1.
        owners: of the secrets.
        shares: elements, int64 (holders, owners, elements). Exactly t shares of a secret always fit together.
    """
    fits = sharing.fit(list(places.values()), shares)
    if bool(fits.all()):
        return
    holders, draws = tuple(places), secure_elements(sharing.p)
    points = [place + 1 for place in places.values()]
    wrong: dict[str, Collection[str] | None] = {}
    for number, owner in enumerate(owners):
        if not fits[number]:  # a random combination of all elements misses an error with probability 1/p
            mixed = (shares[:, number] * draws((shares.shape[-1],)) % sharing.p).sum(-1) % sharing.p
            found = _outliers(points, mixed.numpy(), sharing)
            wrong[owner] = None if found is None else {holders[place] for place in found}
    expected = f"shares that fit to those of others, of the keys of {', '.join(wrong)}"
    raise ContractError(_suspects(wrong, holders, sharing), "OpenedShares", "pads", expected, "others")


def _suspects(wrong: Mapping[str, Collection[str] | None], holders: Collection[str], sharing: Sharing) -> str:
    """Parties that can be the cause. `wrong`: owner -> holders of wrong shares; None if they cannot be located."""
    near = set(holders) if len(holders) == sharing.threshold + 1 else set[str]()  # any share may be the wrong one
    alone = [
        {owner} | (near if found is None else set(found) if len(found) == 1 else set())
        for owner, found in wrong.items()
    ]
    if common := set[str].intersection(*alone):
        return ", ".join(sorted(common)) if len(common) == 1 else f"one of {', '.join(sorted(common))}"
    if any(found is None for found in wrong.values()):
        return f"several of {', '.join(sorted({*holders, *wrong}))}"
    return ", ".join(sorted(_cover({(owner, holder) for owner, found in wrong.items() for holder in found or ()})))


def _cover(pairs: set[tuple[str, str]]) -> set[str]:
    """A set of parties that touches every pair, chosen greedily by number of pairs."""
    cover: set[str] = set()
    while pairs:
        counts = Counter(party for pair in pairs for party in set(pair))
        most = max(counts.values())
        cover |= {party for party, count in counts.items() if count == most}
        pairs = {pair for pair in pairs if not cover & set(pair)}
    return cover


def _outliers(points: Sequence[int], values: _Elements, sharing: Sharing) -> list[int] | None:
    """Indices of wrong values, at most (m - t) / 2; None if there are more."""
    p, t = sharing.p, sharing.threshold
    errors = (len(points) - t) // 2
    powers = np.array([[pow(point, degree, p) for degree in range(t + errors)] for point in points])
    locator = values[:, None] * powers[:, : errors + 1] % p  # y E(x): its last column is that of the monic term
    solved = _solved(np.concatenate([powers, -locator[:, :errors], locator[:, errors:]], axis=1), p)
    if solved is None:
        return None
    at = (powers[:, :errors] * solved[t + errors :] % p).sum(axis=1) + powers[:, errors]
    right = np.flatnonzero(at % p)[:t]
    weights = np.array(lagrange_matrix([points[place] for place in right], points, p))
    fitted = (weights * values[right] % p).sum(axis=1) % p
    wrong = [int(place) for place in np.flatnonzero(fitted != values)]
    return wrong if len(wrong) <= errors else None


def _solved(system: _Elements, p: int) -> _Elements | None:
    """A solution of linear equations modulo p, each a row of coefficients and its value; None if there is none."""
    rows, pivots = system % p, list[int]()
    for column in range(rows.shape[1] - 1):
        top = len(pivots)
        candidates = np.flatnonzero(rows[top:, column])
        if not candidates.size:
            continue
        rows[[top, top + candidates[0]]] = rows[[top + candidates[0], top]]
        rows[top] = rows[top] * pow(int(rows[top, column]), -1, p) % p
        factors = rows[:, column].copy()
        factors[top] = 0
        rows = (rows - factors[:, None] * rows[top]) % p
        pivots.append(column)
    if rows[len(pivots) :, -1].any():
        return None
    solution = np.zeros(rows.shape[1] - 1, np.int64)
    solution[pivots] = rows[: len(pivots), -1]
    return solution
