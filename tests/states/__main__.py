"""Every pair of message kinds in every state of a session: `make states`, or `python -m tests.states [SETTING ...]`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import torch

from tests.support.states import SETTINGS, Case, Outcome, cases, states


def main() -> int:
    """Returns 1 if a member broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.states", description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"all if none is named: {', '.join(SETTINGS)}")
    parser.add_argument("--every", type=int, default=1, help="of so many cases one")
    parser.add_argument("--out", type=Path, help="a file for a line of JSON a case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    failed = 0
    for setting in options.settings or SETTINGS:
        failed += _whole(setting, options.every, options.out)
    return int(bool(failed))


def _whole(setting: str, every: int, out: Path | None) -> int:
    """Runs the cases of a setting and prints their outcomes; returns the number of those in which a rule was broken."""
    begun, counts, broken = time.process_time(), Counter[str](), 0
    chosen = [case for rewound in (False, True) for case in cases(setting, rewound=rewound)][::every]
    for number, case in enumerate(chosen):
        outcome, said, wrong = _one(case)
        counts[outcome] += 1
        if wrong:
            broken += 1
            print(f"\r\033[K{case}\n  {wrong}", file=sys.stderr)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps({**case.words(), "outcome": outcome, "said": said, "wrong": wrong}) + "\n")
        if number % 10 == 0:
            print(
                f"\r\033[K{setting}: {number} of {len(chosen)}, {broken} failures", end="", file=sys.stderr, flush=True
            )
    number = sum(len(states(setting, rewound=rewound)) for rewound in (False, True))
    ends = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    seconds = time.process_time() - begun
    print(f"{setting}: {number} states, {len(chosen)} cases in {seconds:.0f} s: {ends}; {broken} failures", flush=True)
    return broken


def _one(case: Case) -> tuple[str, str, str]:
    """The outcome of a case, the error's text, and what was wrong with it, "" if nothing."""
    outcome = Outcome(case, case.run())
    try:
        outcome.check()
    except AssertionError as failure:
        return outcome.name, outcome.said, str(failure) or traceback.format_exc()
    return outcome.name, outcome.said, ""


if __name__ == "__main__":
    sys.exit(main())
