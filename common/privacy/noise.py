"""Gaussian noise for privacy: from the system's randomness, or from a configured seed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

Normals = Callable[[torch.Size], Tensor]


def secure_bytes() -> Callable[[int], bytes]:
    """A source of bytes that cannot be predicted or reproduced: a ChaCha20 keystream under a system key of its own."""
    stream = Cipher(ChaCha20(os.urandom(32), os.urandom(16)), mode=None).encryptor()
    return lambda count: stream.update(bytes(count))


def seeded_bytes(generator: torch.Generator) -> Callable[[int], bytes]:
    """A source of bytes from a generator, reproducible from the same state."""

    def draw(count: int) -> bytes:
        words = torch.randint(-(2**63), 2**63 - 1, (-(-count // 8),), generator=generator)
        made: bytes = words.numpy().tobytes()[:count]
        return made

    return draw


def secure_normals(shape: torch.Size) -> Tensor:
    """Standard normal numbers that cannot be predicted or reproduced, float64.

    A ChaCha20 keystream under a single-use system key, as uniform numbers of 53 bits, in pairs through the Box-Muller
    transform.
    """
    count = math.prod(shape)
    half = (count + 1) // 2
    bits = np.frombuffer(secure_bytes()(16 * half), dtype=np.uint64) >> np.uint64(11)
    radius, angle = ((bits + 0.5) * 2.0**-53).reshape(2, half)
    length, turn = np.sqrt(-2.0 * np.log(radius)), 2.0 * np.pi * angle
    normals = np.concatenate([length * np.cos(turn), length * np.sin(turn)])[:count]
    return torch.from_numpy(normals).reshape(shape)


def add_normals(values: Tensor, deviation: float, normals: Normals) -> Tensor:
    """Values with noise from N(0, deviation^2) in every entry, float64 on their device, in their shape.

    The sum is rounded to a grid of about deviation / 1024, which adds a ten-millionth to the variance and removes the
    low bits through which floating-point noise reveals the value it was added to.
    """
    grid = 2.0 ** math.floor(math.log2(deviation / 1024))
    noise = normals(values.shape).to(values.device)
    return torch.round((values.double() + deviation * noise) / grid) * grid


def seeded_normals(generator: torch.Generator) -> Normals:
    """Standard normal numbers from a generator, float64; reproducible from the same state."""
    return lambda shape: torch.randn(shape, generator=generator, dtype=torch.float64)
