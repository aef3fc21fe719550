"""For all tests: one thread, since several run at once and the tensors are small."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)

# On a busy machine any example may take long: pytest's own timeout ends what hangs.
settings.register_profile("colonnade", deadline=None)
settings.load_profile("colonnade")
