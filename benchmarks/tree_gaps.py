"""Trees over three parties against scikit-learn's on the joined rows: `python -m benchmarks.tree_gaps FOLDER [SEEDS]`.

FOLDER has a csv file a table, with its names in the first line. Its last column is what is predicted, and is called
`class` or `number`. Columns are dealt to the parties in turn. Both sides learn from the same rows (70 %; ours looks at
10 % for validation) and are scored on the same 20 %: AUC for two classes, accuracy for more, R2 for numbers.
`gradients: clear` grows the trees that encrypted sums grow.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

from colonnade.common.parsing.file import parse
from colonnade.common.protocols.secureboost import Config
from colonnade.server.training.trees.forest import Forest
from colonnade.simulation.federation import Outcome, Simulation

PARTIES, TREES = 3, 100
OURS = Config()
SAME = {
    "max_iter": TREES, "max_depth": OURS.depth, "max_leaf_nodes": None, "learning_rate": OURS.rate,
    "l2_regularization": OURS.l2, "early_stopping": False,
}  # fmt: skip
"""As many trees of the same depth and rate, and l2; with 20 rows a leaf, its default."""
USUAL = {"max_iter": TREES, "early_stopping": False}
"""The defaults: 31 leaves of any depth, rate .1, 255 bins, no l2."""


def main(folder: Path, seeds: int) -> None:
    print("| table | rows | columns | measure | ours | same depth | gap | defaults | gap | best round |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    same, usual = [], []
    for path in sorted(folder.glob("*.csv")):
        table = pd.read_csv(path, skipinitialspace=True)
        runs = [_compare(table, seed) for seed in range(seeds)]
        ours, level, free, best = (statistics.mean(column) for column in zip(*runs, strict=True))
        same += [run[1] - run[0] for run in runs]
        usual += [run[2] - run[0] for run in runs]
        measure = _measure(table).__name__.removesuffix("_score")
        gaps = f"{ours:.4f} | {level:.4f} | {level - ours:+.4f} | {free:.4f} | {free - ours:+.4f} | {best:.0f}"
        print(f"| {path.stem} | {len(table)} | {table.shape[1] - 1} | {measure} | {gaps} |", flush=True)
    for name, gaps_of in (("same depth", same), ("defaults", usual)):
        print(f"{name}: median gap of all runs {statistics.median(gaps_of):+.4f}, largest {max(gaps_of):+.4f}")


def _measure(table: pd.DataFrame) -> Any:
    if table.columns[-1] == "number":
        return r2_score
    return roc_auc_score if table["class"].nunique() == 2 else accuracy_score


def _compare(table: pd.DataFrame, seed: int) -> tuple[float, float, float, int]:
    """Our score, scikit-learn's at the same depth and by its defaults, and the round of our model."""
    outcome, best = _run(table, seed)
    rows = outcome.server.schedule.partition
    train, test = rows.train.numpy(), rows.test.numpy()
    measure, label = _measure(table), table.columns[-1]
    forest: Forest = outcome.server.state["forest"]
    forest.trees = forest.trees[: best * len(outcome.server.state["start"])]
    scores = forest.scores(outcome.server.state["start"].numpy())[test]
    truth = outcome.server.labels.cpu().numpy()[test]
    ours = float(measure(truth, scores.argmax(1) if measure is accuracy_score else scores[:, 0]))
    x = table.drop(columns=label)
    x = x.astype(dict.fromkeys(x.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in x.dtypes]], "category"))
    same, usual = (_scikit(x, table[label], train, test, measure, settings) for settings in (SAME, USUAL))
    return ours, same, usual, best


def _run(table: pd.DataFrame, seed: int) -> tuple[Outcome, int]:
    label = table.columns[-1]
    task = {"task": "regression"} if label == "number" else {"classes": int(table[label].nunique())}
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        table[[label]].to_csv(base / "server.csv", index_label="key")
        for party in range(PARTIES):
            table.drop(columns=label).iloc[:, party::PARTIES].to_csv(base / f"party{party + 1}.csv", index_label="key")
        config = parse({
            "federation": {
                "id": "gaps", "protocol": {"name": "secureboost", "gradients": "clear"}, "parties": PARTIES, **task,
                "rounds": TREES, "batch": 4096, "seed": seed, "rows": {"validation": 0.1, "test": 0.2},
            },
            "server": {"labels": {"source": "csv", "path": "server.csv", "key": "key", "label": label}},
            "parties": {
                f"party{party + 1}": {"data": {"source": "csv", "path": f"party{party + 1}.csv", "key": "key"}}
                for party in range(PARTIES)
            },
        })  # fmt: skip
        outcome = Simulation(config, base=base).run()
    return outcome, outcome.server.best.round or TREES


def _scikit(
    x: pd.DataFrame, y: pd.Series[Any], train: NDArray[np.int64], test: NDArray[np.int64], measure: Any, settings: Any
) -> float:
    kind = HistGradientBoostingRegressor if measure is r2_score else HistGradientBoostingClassifier
    with threadpool_limits(1):  # on a busy machine threads wait for each other
        model = kind(categorical_features="from_dtype", random_state=0, **settings).fit(x.iloc[train], y.iloc[train])
    guess = model.predict_proba(x.iloc[test])[:, 1] if measure is roc_auc_score else model.predict(x.iloc[test])
    return float(measure(y.iloc[test], guess))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
