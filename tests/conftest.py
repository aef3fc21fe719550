"""For all tests: one thread, since several run at once and the tensors are small."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
