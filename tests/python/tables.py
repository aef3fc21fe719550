"""Tables of a bank, a clinic and a server with labels, whose keys partly overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

ROWS = 240


def make_tables() -> dict[str, pd.DataFrame]:
    """One table a member."""
    draws = np.random.default_rng(0)
    values = draws.normal(size=(ROWS, 4))
    ids = np.arange(1000, 1000 + ROWS)
    late = (values @ [1, -1, 1, 0.5] > 0).astype(int)
    bank = pd.DataFrame({"id": ids, "income": values[:, 0], "debt": values[:, 1]})
    clinic = pd.DataFrame({"id": ids, "weight": values[:, 2], "visits": values[:, 3]})
    return {
        "server": pd.DataFrame({"id": ids, "late": late}),
        "bank": bank.sample(frac=0.9, random_state=1),
        "clinic": clinic.sample(frac=0.9, random_state=2),
    }


def make_config(**federation: Any) -> dict[str, Any]:
    """A configuration that leaves sources to the tables."""
    agreed = {"id": "credit", "protocol": "split", "classes": 2, "align": "psi", "epochs": 2, "batch": 64}
    return {
        "federation": {**agreed, "keys": {"seeded": True}, **federation},
        "server": {"labels": {"key": "id", "label": "late"}},
        "every_party": {"data": {"key": "id"}},
    }
