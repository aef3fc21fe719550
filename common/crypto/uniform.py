"""Uniform elements of a prime field: masks, from the system's randomness.

A ChaCha20 keystream is cut into words, words into candidates of as many bits as p - 1, and a candidate that is p or
more is discarded. The others are exactly uniform on [0, p); a remainder modulo p would not be.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from torch import Tensor

Elements = Callable[[Sequence[int]], Tensor]
"""Returns a tensor of a shape, int64, uniform on [0, p)."""

_WORDS = 2**15  # at once: keystream and candidates stay in the cache
_ZEROS = bytes(4 * _WORDS)
_NONCE = bytes(16)  # every key is used for one stream


def secure_elements(p: int) -> Elements:
    """A source of unpredictable, unrepeatable elements, 2 <= p < 2^32: every tensor has a fresh key from the system."""
    return lambda shape: _tensor(p, shape, os.urandom(32))


def _tensor(p: int, shape: Sequence[int], key: bytes) -> Tensor:
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
    buffer = np.empty(_WORDS, np.uint32)
    drawn = np.empty(math.prod(shape), np.int64)
    done = 0
    while done < len(drawn):
        some = _candidates(stream, buffer[: len(drawn) - done], p)
        drawn[done : done + len(some)] = some
        done += len(some)
    return torch.from_numpy(drawn).reshape(tuple(shape))


def _candidates(stream: CipherContext, buffer: NDArray[np.uint32], p: int) -> NDArray[np.uint32]:
    """The next words of the keystream as candidates, without those that are p or more."""
    stream.update_into(_ZEROS[: buffer.nbytes], buffer.view(np.uint8).data)
    words = buffer.astype("<u4", copy=False)
    words &= np.uint32(2 ** (p - 1).bit_length() - 1)
    return words if int(words.max()) < p else words[words < p]
