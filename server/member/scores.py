"""scores.csv: what the run's model says of the server's rows, for `colonnade scorecard`. The server's own file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import torch

from colonnade.common.data.keys import keys_of_rows
from colonnade.common.run.files import write_kept
from colonnade.server.training.context import ServerContext
from colonnade.server.training.metrics.decision import Decision

_BLOCK = 65_536  # rows that are objects at a time
HEADER = ("id", "part", "class", "score", "probability")


def write_scores(path: Path, ctx: ServerContext) -> None:
    """Writes a line for each row whose score is known, with all digits; nothing unless there are two classes.

    `score` is the model's log-odds of the second class, `probability` the same recalibrated as in predictions. `class`
    is empty for training rows with private labels, `id` the row's number where rows have no keys.
    """
    if not ctx.scores:
        return
    text = io.StringIO()
    lines, decision = csv.writer(text, lineterminator="\n"), ctx.rule(ctx.scored) or Decision()
    lines.writerow(HEADER)
    labels, names = ctx.labels.cpu(), (*ctx.classes, "")  # -1, of a label that is not known, names the last
    for part, scores in ctx.scores.items():
        whole = getattr(ctx.schedule.partition, part)
        for rows, block in zip(torch.split(whole, _BLOCK), torch.split(scores, _BLOCK), strict=True):
            ids = keys_of_rows(ctx.ids, rows) or rows.tolist()
            said, margins = [names[label] for label in labels[rows].tolist()], block.numpy()
            probabilities = decision.probabilities(margins).tolist()
            lines.writerows(zip(ids, [part] * len(rows), said, margins.tolist(), probabilities, strict=True))
    write_kept(path, text.getvalue().encode(), 0o600)
