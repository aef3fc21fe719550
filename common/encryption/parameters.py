"""Parameters of sums under encryption: security, noise, range of sums, and number of answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from colonnade.common.errors import InputError

DEGREE = 4096  # N, of the polynomials: a block has as many rows
WORD = 64  # q = 2^64
SIGMA = 8  # deviation of the errors e, u and e'

STANDARD = {1024: (27, 19, 14), 2048: (54, 37, 29), 4096: (109, 75, 58), 8192: (218, 152, 118), 16384: (438, 305, 237)}
"""log2 of the largest modulus for 128, 192 and 256 bits against classical attacks, by N: ternary secrets, errors of
deviation 3.2 or more. Table 1 of the Homomorphic Encryption Standard (Albrecht et al. 2018)."""
LEAST_SIGMA = 3.2

FLOOD = 2.0**16  # how many times larger than what it hides the party's last noise is
FINE, COARSE = 2**20, 2**16
"""That noise is x + COARSE y, with x of deviation FINE. The sum is a discrete Gaussian up to less than 2^-100, since
FINE / COARSE = 16 is above 1.9, the integers' smoothing parameter for 2^-100 (Micciancio and Walter 2017)."""
PROBES, PROBED = 8, 32
"""Vectors of a probe, and how many times larger than what it hides the last noise of its answers is (probe.py)."""
_TERNARY = 2 / 3  # variance of an entry of a secret
_TAIL = 11.0  # deviations; 2 exp(-11^2 / 2) < 2^-86 a sum
_LONGEST = DEGREE * (SIGMA**2 + 1) * (1 + _TAIL / math.sqrt(DEGREE)) ** 2  # |(e_d, s)|^2, but with the same probability


@dataclass(frozen=True)
class SumSize:
    """Parameters of a run's sums.

    Args:
        rows: n, the number of summands.
        weight: the largest magnitude of an entry of the party's matrix; 1 for bins.

    Raises InputError if no range is left for sums.
    """

    rows: int
    weight: int = 1

    def __post_init__(self) -> None:
        if self.rows < 1 or self.weight < 1:
            raise InputError(f"sums over {self.rows} rows with a weight of {self.weight}")
        if self.precision < 1:
            raise InputError(
                f"sums over {self.rows} rows with weights up to {self.weight} leave no bit for a number",
                hint="take fewer rows, or fewer bits for the columns",
            )

    @property
    def blocks(self) -> int:
        """Blocks of rows, the last of which may be partly empty."""
        return -(-self.rows // DEGREE)

    @cached_property
    def hidden(self) -> float:
        """Deviation of M e + u e_d - e' s in one sum, the part that would inform the server."""
        columns = self.rows * self.weight**2 * SIGMA**2
        masks = DEGREE * SIGMA**2 * (SIGMA**2 + _TERNARY)
        return math.sqrt(columns + masks)

    @cached_property
    def coarse(self) -> int:
        """Deviation of y in the party's last noise x + COARSE y."""
        return math.ceil(FLOOD * self.hidden / COARSE)

    @cached_property
    def flood(self) -> float:
        """Deviation of the party's last noise, at least FLOOD times `hidden`."""
        return math.hypot(FINE, COARSE * self.coarse)

    @cached_property
    def largest_error(self) -> int:
        """Bound of an encrypted sum's error, exceeded with probability 2^-86."""
        return math.ceil(_TAIL * math.hypot(self.hidden, self.flood))

    @cached_property
    def step(self) -> int:
        """Δ, a power of two: numbers are encrypted as multiples of it. At least twice the largest error."""
        return 1 << (2 * self.largest_error).bit_length()

    @cached_property
    def largest_sum(self) -> int:
        return (1 << (WORD - 1)) // self.step - 1

    @property
    def precision(self) -> int:
        """Bits of a number besides its sign, such that no sum leaves the range."""
        return (self.largest_sum // (self.rows * self.weight)).bit_length() - 1

    def refuse_large(self, bits: int) -> None:
        """Raises InputError if sums of numbers of `bits` bits, besides the sign, could leave the range."""
        if bits > self.precision:
            raise InputError(
                f"sums over {self.rows} rows of numbers of {bits} bits could leave the range of {self.largest_sum}",
                hint=f"take at most {self.precision} bits",
            )

    @property
    def probe_noise(self) -> int:
        """Deviation of the last noise of a probe's answers (probe.py)."""
        return PROBED * math.ceil(self.hidden)

    @property
    def largest_probe_error(self) -> int:
        """Bound of a probe sum's error, exceeded with probability 2^-86."""
        return math.ceil(_TAIL * math.hypot(self.hidden, self.probe_noise))

    def residual(self, answers: int, noise: float = 0) -> float:
        """Error deviation of an RLWE sample that is as hard as the hint after this many answers.

        Every answer is a hint about (u, e'): its inner product with h = (e_d, -s), plus the last noise. With such hints
        the sample is as hard as one without, whose errors have the deviation σ_0: 1 / σ_0^2 = 2 (1 / σ^2 + B / f^2),
        where B is the largest eigenvalue of Σ h h' (Kim, Lee, Seo and Song 2023, Hint-MLWE, Theorem 1). B is bounded by
        the sum of |h|^2, as if all answers were to one vector: however alike they are, and repeated or not.

        Args:
            noise: deviation of the answers' last noise; 0 for `flood`.
        """
        return 1 / math.sqrt(2 / SIGMA**2 + 2 * answers * _LONGEST / (noise or self.flood) ** 2)

    @cached_property
    def most_answers(self) -> int:
        """Answers under one hint until `residual` is LEAST_SIGMA, the published table's deviation."""
        return int((1 / LEAST_SIGMA**2 / 2 - 1 / SIGMA**2) * self.flood**2 / _LONGEST)

    def disclosed(self, bins: int, answers: int) -> float:
        """Most bits that `answers` sums over each bin reveal about the columns, through the rounding's remainder.

        The server knows e, so a remainder is M e under a Gaussian of deviation `flood`: a channel whose capacity is at
        most half of the ratio of the variances, in nats.
        """
        return bins * answers * self.rows * (self.weight * SIGMA / self.flood) ** 2 / 2 / math.log(2)


def security(degree: int = DEGREE, word: int = WORD, sigma: float = SIGMA) -> int:
    """Bits of security by the published table; 0 if below 128."""
    if sigma < LEAST_SIGMA:
        return 0
    return max((bits for bits, most in zip((128, 192, 256), STANDARD.get(degree, (0, 0, 0)), strict=True)
                if word <= most), default=0)  # fmt: skip


ROWS_A_BIN = 10
"""Training rows for each sum that is known, below which labels can be solved for (docs/encryption.md, Labels)."""


def solvable(bins: Mapping[str, int], rows: int) -> str:
    """A sentence about parties with so many bins, alone or together, that their sums determine the rows' labels; "" if
    none.

    Args:
        bins: bins of all columns, by party.
        rows: number of training rows.
    """
    together = {"all together": sum(bins.values())} if len(bins) > 1 else {}
    many = [f"{who} {count}" for who, count in {**bins, **together}.items() if count * ROWS_A_BIN > rows]
    if not many:
        return ""
    return (
        f"bins for {rows} training rows: {', '.join(many)}; from sums over each many rows' labels can be solved "
        "for; bring more rows or fewer columns, or take larger bins where the protocol has `bins` and `least`, until "
        "they are at most a tenth of the rows"
    )
