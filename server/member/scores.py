"""scores.csv: what the run's model says of the server's rows, for `colonnade scorecard`. The server's own file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from colonnade.common.run.files import write_kept
from colonnade.server.training.context import ServerContext
from colonnade.server.training.metrics.decision import Decision

HEADER = ("id", "part", "class", "score", "probability")


def write_scores(path: Path, ctx: ServerContext) -> None:
    """Writes a line for each row whose score is known, with all digits; nothing unless there are two classes.

    `score` is the model's log-odds of the second class, `probability` the same recalibrated as in predictions. `class`
    is empty for training rows with private labels, `id` the row's number where rows have no keys.
    """
    if not ctx.scores:
        return
    text = io.StringIO()
    lines, decision = csv.writer(text, lineterminator="\n"), ctx.best_decision or Decision()
    lines.writerow(HEADER)
    labels, names = ctx.labels.cpu(), (*ctx.classes, "")  # -1, of a label that is not known, names the last
    for part, scores in ctx.scores.items():
        rows = getattr(ctx.schedule.partition, part).tolist()
        ids = rows if ctx.ids is None else [ctx.ids[row] for row in rows]
        said = [names[label] for label in labels[rows].tolist()]
        margins = scores.numpy()
        lines.writerows(
            zip(ids, [part] * len(rows), said, margins.tolist(), decision.probabilities(margins).tolist(), strict=True)
        )
    write_kept(path, text.getvalue().encode(), 0o600)
