"""How long tests wait for what happens soon: it ends tests that hang, also on a machine that is busy with others."""

from __future__ import annotations

PATIENCE = 500.0
