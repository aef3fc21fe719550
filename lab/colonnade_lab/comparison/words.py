"""Text shared by both pages."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.run.environment import describe_environment
from colonnade_lab.comparison.attacked import VICTIM
from colonnade_lab.comparison.plan import ATTACKED, OWN, PLAIN, SLOW, ComparisonPlan
from colonnade_lab.comparison.protocol_results import ProtocolResults
from colonnade_lab.comparison.recommendations import GOOD

_CONDITIONS = {
    PLAIN: "undisturbed",
    SLOW: "with stragglers, waiting",
    OWN: "with stragglers, not waiting for all",
    ATTACKED: "attacked",
}

_OF = {"client": "a party", "row": "a row"}

TITLE = "Comparison of all protocols"


def how(plan: ComparisonPlan, seeds: int, results: Sequence[ProtocolResults] = ()) -> str:
    system = describe_environment()
    made = sorted({record.version for one in results for records in one.found.values() for record in records})
    by = f" Made by version {' and '.join(made)}." if any(made) else ""
    return (
        f"Written by `colonnade compare --seeds {seeds}` (the virtual clock: the same code, without a network; "
        f"{system['system']}, torch {system['torch']}). Every protocol had the same digits, the same two columns of "
        f"pixels at each of four holders, the same bottom models and the same rounds (`experiments/{plan.base}`), and "
        "rates of its own, chosen on validation rows (`lab/colonnade_lab/plans/beside.yaml`). Numbers are of test "
        f"rows, means of the seeds; curves are of the first one.{by}"
    )


CAUTIONS = (
    "One small task: what is named above has the better mean, and no interval says that it is ahead. Differences of "
    "a point or two are none.",
    f"'None' means that no eligible protocol reaches {GOOD:g} %. Protocols that send parties the labels are "
    "named for no protection, whatever their numbers.",
    "MB are those of training's messages, both ways; evaluations are not counted.",
    "Seconds are delays alone: the virtual clock charges nothing for computing. With 'never' a seed did not get there.",
    "Runs with noise were evaluated clean, and their noise came from the seed: a benchmark of learning, no guarantee.",
    "With noise on a party's whole data nothing of a single message is left at any of these epsilons: where the three "
    "numbers are alike, parties learned from what came back (labels, or gradients of a head that had seen noise), and "
    "the clean evaluation shows what they know. Where evaluations had the noise as well, split, c_vfl and vimadmm were "
    "right in 11, 11 and 12 % at epsilon 64 (one seed).",
    "An epsilon of a party's whole data and one of a row's embeddings are about different things and are not to be "
    "compared; noise on what goes up protects no label.",
    f"Attacks are of one seed on {VICTIM}, with the default settings of `colonnade attack`: a lower bound of what "
    "leaks. Labels are named from the first or the last epoch, whichever names more. The attacker at the server "
    "knows a fifth of the rows. A dash is 'no message names a row', which is no protection.",
)
"""Caveats of the numbers, one sentence each."""


def notes(plan: ComparisonPlan, results: Sequence[ProtocolResults], seeds: int) -> list[tuple[str, str]]:
    """Differences from the other protocols, by protocol, and the numbers with fewer seeds than requested."""
    found = []
    for result in results:
        own = (
            f"With stragglers, not waiting for all: {result.entry.way}."
            if OWN in result.found and result.entry.way
            else ""
        )
        if said := " ".join(part for part in (result.entry.note, own, _lost(plan, result, seeds)) if part):
            found.append((result.name, said))
    return found


def _lost(plan: ComparisonPlan, result: ProtocolResults, seeds: int) -> str:
    wanted = {condition: 1 if condition == ATTACKED else seeds for condition in plan.conditions(result.name)}
    there = {condition: len(result.found.get(condition, ())) for condition in wanted}
    few = [f"{_condition(each)} {there[each]} of {most}" for each, most in wanted.items() if there[each] < most]
    return f"Seeds that failed or were not run yet are in no number: {', '.join(few)}." if few else ""


def _condition(name: str) -> str:
    unit, _, epsilon = name.partition("-")
    return f"the noise for epsilon {epsilon} of {_OF[unit]}" if epsilon else _CONDITIONS[name]
