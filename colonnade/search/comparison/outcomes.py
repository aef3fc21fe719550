"""Results of a comparison: of each run, kept in a file so that it is not repeated; of each protocol and reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.common.run.files import write_kept
from colonnade.common.version import VERSION
from colonnade.reports.standings.contender import SHARES, Contender, Estimate, Protection, is_reference
from colonnade.search.folder import digest
from colonnade.search.metrics import UP, SearchMetric
from colonnade.search.simulated import Result
from colonnade.server.training.metrics import chance

DONE, PRUNED, DIVERGED, FAILED, LOST = "ok", "pruned", "diverged", "failed", "lost"
"""Ends of a run. A lost one, whose process was killed, is not kept and runs again."""


@dataclass(frozen=True)
class KeptRun:
    """Result of a run.

    Args:
        reason: why the run diverged or failed.
        evaluations: metrics of the validation rows at every evaluation.
    """

    state: str
    reason: str = ""
    result: Result = field(default_factory=Result)
    evaluations: tuple[Mapping[str, float], ...] = ()

    @property
    def at_chance(self) -> bool:
        """True if the test rows do not show that the model is better than one without columns."""
        return self.result.chance is not None and not self.result.chance["above"]

    def has(self, metric: str, *, tested: bool) -> bool:
        """True if it has the metric on all required rows; a failed run needs none."""
        if self.state in (DIVERGED, FAILED):
            return True
        known = [*self.evaluations, self.result.metrics, *((self.result.tested,) if tested else ())]
        return all(metric in each for each in known)


@dataclass(frozen=True)
class RunShelf:
    """Folder of results, named by their keys; `data` is the digest of rows and columns."""

    folder: Path
    data: str

    def key(self, tree: Mapping[str, Any], *, tested: bool) -> str:
        """Key of a run: data, version, and the configuration with all defaults, without file paths."""
        try:
            config = parse(dict(tree)).model_dump(mode="json")
        except ConfigError:
            return digest([self.data, VERSION, tree, tested])  # running it refuses it
        for section in (config["server"], config["server"].get("active") or {}, *config["parties"].values()):
            section.pop("labels", None)
            if isinstance(section.get("data"), dict):
                section["data"] = Path(section["data"]["path"]).name
        return digest([self.data, VERSION, config, tested])

    def reference_key(self, name: str, metric: str, seed: int) -> str:
        return digest([self.data, VERSION, "reference", name, metric, seed])

    def get(self, key: str) -> KeptRun | None:
        """Returns the result; None if missing, torn, or failed for another reason than divergence."""
        try:
            found = json.loads(self._path(key).read_text(encoding="utf-8"))
            run = KeptRun(found["state"], found["reason"], Result(**found["result"]), tuple(found["evaluations"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None if run.state == FAILED else run

    def keep(self, key: str, run: KeptRun, about: Mapping[str, Any]) -> None:
        """Writes a result atomically; `about` is information for readers of the file."""
        content = json.dumps({"about": dict(about), **asdict(run)}, indent=1)
        write_kept(self._path(key), content.encode(), in_new=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key[:40]}.json"


CANNOT = "cannot"
"""Status of a protocol that does not run on these data."""


@dataclass
class ProtocolOutcome:
    """A protocol in a comparison.

    Args:
        notes: settings beyond its defaults.
        reason: why it cannot run, or why its defaults failed.
        defaults, tuned: runs with every seed; empty before they have ended.
        settings: the tuned runs', KEY=VALUE; empty if the defaults were the best.
        trials: number of trials by their ends.
        searched: whether a search has ended.
        federation: section `federation` of the defaults.
    """

    name: str
    notes: tuple[str, ...] = ()
    reason: str = ""
    cannot: bool = False
    defaults: list[KeptRun] = field(default_factory=list)
    tuned: list[KeptRun] = field(default_factory=list)
    settings: tuple[str, ...] = ()
    trials: dict[str, int] = field(default_factory=dict)
    searched: bool = False
    federation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Status of the defaults: `ok`, `diverged`, `failed`, `cannot`, or `waiting`."""
        if self.cannot:
            return CANNOT
        if not self.defaults:
            return "waiting"
        return next((run.state for run in self.defaults if run.state != DONE), DONE)

    @property
    def at_chance(self) -> str:
        """Which models the test rows do not show to be better than chance: `defaults`, `tuned`, `both`, or ""."""
        found = [name for name, runs in (("defaults", self.defaults), ("tuned", self.tuned)) if at_chance(runs)]
        return "both" if len(found) > 1 else "".join(found)

    @property
    def shown(self) -> list[KeptRun]:
        """The runs with the values that the search has chosen, else those with defaults."""
        return self.tuned if self.searched and self.tuned else self.defaults

    def contender(self, goal: SearchMetric) -> Contender:
        """The protocol as a contender, with the values that the search has chosen."""
        runs, metric = self.shown, goal.metric
        keys = self.federation.get("protocol") or {"name": self.name}
        epsilon = (self.federation.get("privacy") or {}).get("epsilon")
        noise = "" if epsilon is None else f"noise on a row's embeddings, epsilon {epsilon:g}, no guarantee for a row"
        protection = Protection.of(
            self.name, CONTRACTS[self.name].config(**keys).model_dump(), noise=noise, guaranteed=False
        )
        return Contender(
            self.name, self.name, "tuned" if self.settings else "", estimate(runs, metric, "tested"),
            estimate(runs, metric, "metrics"), _mean([run.result.payload for run in runs]),
            _mean([run.result.seconds for run in runs]), epsilon, protection, self._cause, is_reference(self.name),
        )  # fmt: skip

    @property
    def _cause(self) -> str:
        if self.status not in (DONE, "waiting") and self.shown is self.defaults:
            return f"{self.status}: {self.reason}" if self.reason else self.status
        if not at_chance(self.shown):
            return ""
        verdict = next(run.result.chance for run in self.shown if run.at_chance)
        return chance.warning(verdict, "test", "a model that knows no column") or ""

    def plain(self, goal: SearchMetric) -> dict[str, Any]:
        """One line of the table: values in the metric's own units, gaps in points or those units, seconds, bytes."""
        metric = goal.metric
        defaults, tuned = of_runs(self.defaults, metric), of_runs(self.tuned, metric)
        return {
            "protocol": self.name,
            "status": self.status,
            "defaults_val": defaults[0], "defaults_test": defaults[1],
            "tuned_val": tuned[0], "tuned_test": tuned[1],
            "gap_val": gap(defaults[0], tuned[0], goal), "gap_test": gap(defaults[1], tuned[1], goal),
            "defaults_error": error_of(self.defaults, metric), "tuned_error": error_of(self.tuned, metric),
            "at_chance": self.at_chance,
            "settings": " ".join(self.settings),
            "tuning": "tuned" if self.settings else ("defaults were best" if self.searched and self.tuned else ""),
            "trials": ", ".join(f"{count} {state}" for state, count in self.trials.items()),
            "seconds": _mean([run.result.seconds for run in self.defaults]),
            "tuned_seconds": _mean([run.result.seconds for run in self.tuned]),
            "bytes": _mean([run.result.payload for run in self.defaults]),
            "tuned_bytes": _mean([run.result.payload for run in self.tuned]),
            "rounds": _mean([run.result.rounds for run in self.shown]),
            "notes": "; ".join(self.notes),
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class ReferenceOutcome:
    """A model that no federation has; `title` names it in charts."""

    name: str
    title: str
    words: str
    run: KeptRun

    def contender(self, goal: SearchMetric) -> Contender:
        tested, validated = (estimate([self.run], goal.metric, part) for part in ("tested", "metrics"))
        return Contender(
            self.title, test=tested, validation=validated, seconds=self.run.result.seconds, cause=self.run.reason,
            reference=True,
        )  # fmt: skip

    def plain(self, goal: SearchMetric) -> dict[str, Any]:
        validated, tested = of_runs([self.run], goal.metric)
        return {
            "reference": self.name, "what": self.words, "status": self.run.state, "val": validated, "test": tested,
            "error": error_of([self.run], goal.metric), "at_chance": "yes" if at_chance([self.run]) else "",
            "seconds": self.run.result.seconds, "reason": self.run.reason,
        }  # fmt: skip


def of_runs(runs: list[KeptRun], metric: str) -> tuple[float | None, float | None]:
    """Mean of the metric on validation and on test rows; None unless all runs have ended well."""
    if any(run.state != DONE for run in runs):
        return None, None
    results = [run.result for run in runs]
    return _mean([each.metrics.get(metric) for each in results]), _mean([each.tested.get(metric) for each in results])


def estimate(runs: list[KeptRun], metric: str, part: str) -> Estimate | None:
    """Mean of the metric on validation rows (`metrics`) or test rows, with its error; None without a value.

    Further seeds share the rows and do not lower the error.
    """
    if not runs or any(run.state != DONE for run in runs):
        return None
    value = _mean([getattr(run.result, part).get(metric) for run in runs])
    errors = [(run.result.errors if part == "tested" else run.result.validation_errors).get(metric) for run in runs]
    return None if value is None else Estimate(value, _mean(errors))


def error_of(runs: list[KeptRun], metric: str) -> float | None:
    """Standard error of the metric on test rows; further seeds share these rows and do not lower it."""
    return None if any(run.state != DONE for run in runs) else _mean([run.result.errors.get(metric) for run in runs])


def at_chance(runs: list[KeptRun]) -> bool:
    """True if for at least half of the seeds the test rows do not show a model better than chance."""
    return bool(runs) and 2 * sum(run.at_chance for run in runs) >= len(runs)


def gap(before: float | None, after: float | None, goal: SearchMetric) -> float | None:
    """Improvement, positive if the second is better: in points (hundredths) for shares, else in the metric's units."""
    if before is None or after is None:
        return None
    found = (after - before) * (1 if goal.direction == UP else -1)
    return found * (100 if goal.metric in SHARES else 1)


def _mean(values: list[Any]) -> float | None:
    return None if not values or any(value is None for value in values) else mean(values)
