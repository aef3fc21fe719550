"""Runs commands of its tree for `python -m tests.golden`: one process, whose imports serve all.

    PYTHONPATH=TREE python -P TREE/tests/golden/worker.py  < jobs  > answers

A job is a line of JSON, {"folder", "words", "processes"}; its answer is one too, {"code", "said"}: builds must agree on
these. Without `processes` members are threads over real gRPC (tests/support/household.py): a fifth of the time, and the
same files but for logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tests.support import warm
from tests.support.household import colonnade


def perform(job: dict[str, Any]) -> tuple[int, str]:
    """Exit code and output of a command. In the main thread, since commands handle signals."""
    kept = {"COLONNADE_ALIGNMENTS": str(Path(job["folder"]) / "kept")}
    with contextlib.chdir(job["folder"]), patch.dict(os.environ, kept):
        if not job["processes"]:
            return colonnade(*job["words"])
        done = warm.run([*warm.COLONNADE, *job["words"]], check=False, capture_output=True)
        return done.returncode, done.stdout + done.stderr


def main() -> None:
    """Until the input ends."""
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed is no answer
    for line in sys.stdin:
        code, said = perform(json.loads(line))
        print(json.dumps({"code": code, "said": said}), file=answers, flush=True)


if __name__ == "__main__":
    main()
