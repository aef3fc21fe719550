"""Both attacks of Luo et al. 2021 on a party's features, from the joint model's predictions."""

from __future__ import annotations

from colonnade_lab.attacks.features.coalition import view
from colonnade_lab.attacks.features.equations import solve
from colonnade_lab.attacks.features.generator import generate, regress
from colonnade_lab.attacks.inversion import Inversion, judge, known_rows
from colonnade_lab.attacks.run import AttackedRun

ESA, GRN, REGRESSION = "equations", "generator", "regression"


def infer_features(run: AttackedRun, party: str, known: float, seed: int) -> dict[str, Inversion]:
    """Infers a party's training rows by each attack that fits the model, with all other members as the attacker.

    `regression` is the baseline: the same inputs and known rows, without the model. The known share of the training
    rows gives the mean and range of each number.
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
