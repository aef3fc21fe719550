"""Accuracy against the epsilon of a person with a row at every party, on MNIST: the picture of docs/choosing.md.

    python -m benchmarks.epsilon_figure FOLDER

It draws measured numbers of the protocols' pages; epsilons of persons are computed here from a party's. Writes
`epsilon-person.svg` to FOLDER.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from colonnade.common.privacy.accounting.accountant import epsilon, find_noise_multiplier
from colonnade_lab.pages.plots import as_file, coloured, lines

DELTA = 1e-5  # of the Gaussian mechanisms; codes have 1e-6
FIRST = 4.0  # start of the logarithmic axis

CODES = {7.999: 0.843, 11.999: 0.926, 16.0: 0.950}
"""A person's epsilon -> test accuracy of `codes`, MNIST halves: docs/protocols/codes.md, means of seeds 0 to 2."""
SPLIT = {20: 0.810, 50: 0.947, 150: 0.963}
"""A party's epsilon -> `split`, two parties, positive_sphere, one epoch: docs/protocols/vfl_afe.md."""
ONCE, EACH = {8: 0.601}, {8: 0.259}
"""Likewise `split_avg`, 14 parties, with noise once and with noise from each party: docs/protocols/split_avg.md."""


def person(party: float, parties: int) -> float:
    """Epsilon of a person with a row at all parties, from Gaussian releases with epsilon `party` each."""
    return epsilon(parties, find_noise_multiplier(party, DELTA, 1, "row"), DELTA, "row")


def once(party: float, parties: int) -> float:
    """The same with noise once: every release counts for as many as there are parties in the sum."""
    return epsilon(parties**2, find_noise_multiplier(party, DELTA, 1, "row"), DELTA, "row")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sphere = {person(each, 2): found for each, found in SPLIT.items()}
    series = {
        "codes, 2 parties": CODES,
        "split, noise on embeddings,\n2 parties, 1 epoch *": sphere,
        "split_avg, noise once,\n14 parties *": {once(each, 14): found for each, found in ONCE.items()},
        "split_avg, noise of each,\n14 parties *": {person(each, 14): found for each, found in EACH.items()},
    }
    points = {name: [(math.log2(x / FIRST), y) for x, y in found.items()] for name, found in series.items()}
    picture = lines(
        coloured(points), lambda y: f"{y:.0%}", lambda x: f"{FIRST * 2**x:g}", span=(0.0, 1.0),
        foot="epsilon of a person with a row at every party (logarithmic)",
        title="Test accuracy on MNIST against a person's epsilon, by mechanism",
    )  # fmt: skip
    (folder / "epsilon-person.svg").write_text(as_file(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
