"""Computes as another processor might: every entry of a layer's output is off by some last bits.

`ROUNDING=3 pytest -p tests.support.rounding TESTS` fails where a test relies on the floating point of one processor,
library or number of threads. A run is still the same as another run in the same process, bit for bit.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LARGEST = int(os.environ.get("ROUNDING", "1")) * 2**-22  # relative error; float32 has 24 bits

_linear, _conv2d = functional.linear, functional.conv2d


def _off(exact: Tensor) -> Tensor:
    return exact * (1 + _LARGEST * torch.sin(1e4 * exact.detach()))


def _off_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _off(_linear(input, weight, bias))


def _off_conv2d(input: Tensor, *args: Any, **more: Any) -> Tensor:
    return _off(_conv2d(input, *args, **more))


functional.linear = _off_linear
functional.conv2d = _off_conv2d
