"""Sentences of the frontier's page, all derived from results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from colonnade.common.run.environment import describe_environment
from colonnade_lab.frontier.looks import AXES, MIB, ROUNDS, SECONDS, FrontierPoint
from colonnade_lab.frontier.plan import COMPUTING, UNCOMPRESSED, FrontierBudgets, FrontierPlan
from colonnade_lab.frontier.standing import SetFrontier

TITLE = "The frontier of all protocols"


def axis_words(axis: str) -> str:
    if axis == MIB:
        return "MiB of training, both ways"
    return "rounds" if axis == ROUNDS else f"seconds at a delay of {SECONDS[axis]} ms"


def budget_words(axis: str, budget: float) -> str:
    if axis == MIB:
        return f"{budget:g} MiB"
    return f"{budget:g} rounds" if axis == ROUNDS else f"{budget:g} s at {SECONDS[axis]} ms"


def budgets_of(plan: FrontierBudgets, axis: str) -> tuple[float, ...]:
    return {MIB: plan.mib, ROUNDS: plan.rounds}.get(axis, plan.seconds)


def how(plan: FrontierPlan, seeds: int) -> list[str]:
    """Paragraphs on the measurements."""
    system = describe_environment()
    bits = " or ".join(f"{each}" for each in plan.bits)
    delays = ", ".join(f"{delay}" for delay in SECONDS.values())
    return [
        f"Written by `colonnade reproduce --frontier --seeds {seeds}` (the virtual clock: the same code, without a "
        f"network; {system['system']}, torch {system['torch']}). Every protocol had the same rows, the same 400 rounds "
        "and the same looks, an evaluation after every tenth round. Models and rates are the "
        "[defaults](../defaults.md); nothing was tuned.",
        f"Messages travel uncompressed ({UNCOMPRESSED} an entry) or with {bits} bits, in each direction that a "
        "protocol can compress. Within a budget the compression and the look of a protocol are those with the "
        "highest accuracy on **validation** rows, mean of the seeds; the numbers are the accuracy on **test** rows "
        "of what was chosen. No choice depends on test rows. A protocol is first within a budget if the 95 % "
        "interval of its lead on test rows over every other, paired by seed, excludes 0 (Student's t, no deviation "
        "below the binomial error of the test rows). One seed decides nothing, and names nobody.",
        f"Seconds are those of the virtual clock at a delay of {delays} ms one way, with {COMPUTING} of computing at "
        "every member; bandwidth is unlimited, since bytes have an axis of their own, and evaluations, encryption and "
        "field arithmetic take no time. A synchronous protocol has the same course at every delay, and its seconds "
        "follow exactly from a few rounds at each. `vafl`, `czofo` and `zoo_vfl` run as parties come: every delay is a "
        "run of its own, and on the other axes they stand with that at 25 ms. MiB are those of training's messages, "
        "what comes before the rounds included.",
    ]


def summary(found: Sequence[SetFrontier], plan: FrontierPlan) -> list[str]:
    """Counts how often a protocol is first within a budget, over the sets with two seeds; one line per axis."""
    whole = [one for one in found if set(one.seeds) == set(plan.protocols) and one.decides]
    lines = [] if whole else ["No set has two seeds of all protocols yet, so that none is named first within a budget."]
    for axis in AXES:
        leaders = list(_leaders(whole, plan, axis))
        firsts = Counter(each[0].protocol for each in leaders if len(each) == 1)
        if total := len(leaders):
            counted = [f"{name} {count}" for name, count in sorted(firsts.items(), key=lambda one: -one[1])]
            said = ", ".join([*counted, f"undecided {total - sum(firsts.values())}"])
            lines.append(f"- Against {axis_words(axis)}, first within {total} budgets of the sets: {said}.")
    return lines


def compression(found: SetFrontier, plan: FrontierPlan) -> str:
    """Says which compression the byte budgets select; "" if there is no choice."""
    said = []
    for budget in plan.budgets.mib:
        chosen = Counter(look.variant.split()[0] for look in found.ranked(MIB, budget))
        if chosen:
            counts = ", ".join(f"{bits} bits {chosen[bits]}" for bits in sorted(chosen, key=int))
            said.append(f"within {budget:g} MiB {counts}")
    return f"Chosen by so many protocols: {'; '.join(said)}." if said else ""


def gap(found: SetFrontier, plan: FrontierPlan) -> str:
    """Says how far all protocols within all rounds are from a reference; "" if one of them is missing."""
    most = max(plan.budgets.rounds)
    ranked = found.ranked(ROUNDS, most)
    others = [look for name in sorted(found.references) if (look := found.of(ROUNDS, name, most)) is not None]
    if not ranked or not others:
        return ""
    tests, other = sorted(ranked, key=lambda look: look.test), others[0]
    return (
        f"Within {most:g} rounds the protocols have {percent(tests[0])} to {percent(tests[-1])} of the test rows; "
        f"{other.protocol}, where every column is shared, has {percent(other)}."
    )


def percent(look: FrontierPoint) -> str:
    return f"{100 * look.test:.1f} %"


def _leaders(found: Sequence[SetFrontier], plan: FrontierPlan, axis: str) -> Iterator[list[FrontierPoint]]:
    for one in found:
        for budget in budgets_of(plan.budgets, axis):
            if leaders := one.leaders(axis, budget):
                yield leaders
