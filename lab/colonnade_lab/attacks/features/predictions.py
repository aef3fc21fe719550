"""A party's features from what the joint model predicts: both attacks of Luo et al. 2021, and what they are worth."""

from __future__ import annotations

from colonnade_lab.attacks.features.coalition import view
from colonnade_lab.attacks.features.equations import solve
from colonnade_lab.attacks.features.generator import generate, regress
from colonnade_lab.attacks.inversion import Inversion, judge, known_rows
from colonnade_lab.attacks.run import AttackedRun

ESA, GRN, REGRESSION = "equations", "generator", "regression"


def infer_features(run: AttackedRun, party: str, known: float, seed: int) -> dict[str, Inversion]:
    """What all others find of a party's training rows, by each attack that fits the model.

    `regression` is the baseline: from the same inputs by the known rows, without the model.

    Args:
        known: share of the training rows whose features the attackers know: for the mean and the range of each number.
        seed: of the choice of known rows, and of the network.

    Raises:
        InputError: the model cannot be restored, or too few rows are known.
        CheckpointError: a member's checkpoint is gone.
    """
    seen = view(run, party)
    have, rest = known_rows(party, len(seen.rows), known, seed)
    x, y = seen.x, run.labels[seen.rows]
    mean = x[have].flatten(1).mean(0)
    found = {ESA: solve(seen, mean), GRN: generate(seen, have, seed), REGRESSION: regress(seen, have)}
    return {
        how: judge(
            made[rest].view(x[rest].shape), x[have], x[rest], y[have], y[rest],
            width=seen.logs.shape[1], decoder=how, seed=seed,
        )
        for how, made in found.items() if made is not None
    }  # fmt: skip
