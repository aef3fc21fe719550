"""Trials of a search and their store, on Optuna."""

from __future__ import annotations

import hashlib
import threading
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.search.metrics import SearchMetric
from colonnade.search.space import Searched, setting

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

PRUNERS = ("median", "hyperband", "none")

_PLACE, _LOST, _REASON = "place", "lost", "reason"
_JOURNAL = "journal:"
_NAMED_WITHIN = 10.0  # seconds from a trial's beginning in the store until it names its place, one write later
WARM_UP = 3  # evaluations before a trial may be pruned: slow learners may catch up


@dataclass(frozen=True)
class TrialRecord:
    """A trial as stored.

    Args:
        number: from 0.
        state: `complete`, `pruned`, `failed`, `lost` (its process was killed; it is retried), `running` or `waiting`.
        value: the metric's; for a pruned trial, at its last evaluation; None if there is none.
        settings: changes, as for `--set`; `values` has them by key.
        seconds: computing time; None if unknown.
        reason: why it failed, or "".
        error: standard error of the value on these rows; None if unknown.
    """

    number: int
    state: str
    value: float | None
    settings: tuple[str, ...]
    values: Mapping[str, Any]
    evaluations: int
    seconds: float | None
    reason: str
    error: float | None = None


@dataclass
class Asked:
    """A running trial; `settings` are its changes, as for `--set`."""

    trial: optuna.Trial
    settings: tuple[str, ...]

    @property
    def number(self) -> int:
        return self.trial.number


@dataclass
class TrialStore:
    """A study: hands out trials and records their ends. Several threads and processes may use one.

    Args:
        place: number of this process's folder; left-over trials with this number belong to it.
    """

    study: optuna.Study
    space: Sequence[Searched]
    goal: SearchMetric
    seed: int
    place: str
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def recover(self) -> int:
        """Marks unfinished trials of this place as failed, queues them again, and returns their number.

        Nothing else may run in this place. A trial that names no place has just begun at another machine, or its
        process was killed before it could: it is taken if it still names none after a wait.
        """
        optuna, running = load_optuna(), self._running()
        if any(_PLACE not in trial.user_attrs for trial in running):
            time.sleep(_NAMED_WITHIN)
            known = {trial.number for trial in running}
            running = [trial for trial in self._running() if trial.number in known]
        own = [trial for trial in running if trial.user_attrs.get(_PLACE, self.place) == self.place]
        for trial in own:
            optuna.trial.Trial(self.study, trial._trial_id).set_user_attr(_LOST, True)
            self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
            if again := _drawn(trial):
                self.study.enqueue_trial(again)
        return len(own)

    def begin(self, own: Mapping[str, Any]) -> None:
        """Queues the file's own values as the first trial of a new study."""
        if own and not self._all():
            self.study.enqueue_trial(dict(own), skip_if_exists=True)

    def first(self, own: Mapping[str, Any]) -> TrialRecord | None:
        """The first completed trial with these values of all keys; None if there is none."""
        wanted = {one.key: one.value(own[one.key]) for one in self.space if one.key in own}
        done = (one for one in self.records() if one.state == "complete" and len(wanted) == len(self.space))
        return next((one for one in done if one.values == wanted), None)

    def ask(self, trials: int) -> Asked | None:
        """Returns the next trial, or None if `trials` have ended or are running.

        Draws depend only on the seed and the trials so far, not on this process.
        """
        with self._lock:
            optuna, counted = load_optuna(), self.counted()
            if len(counted) >= trials:
                return None
            self.study.sampler = optuna.samplers.TPESampler(
                seed=_derived(self.seed, len(counted)),
                constant_liar=True,
                n_startup_trials=max(1, min(10, trials // 4)),  # random ones, before the sampler learns
            )
            trial = self.study.ask()
            trial.set_user_attr(_PLACE, self.place)
            return Asked(trial, tuple(setting(one.key, one.value(_suggested(trial, one))) for one in self.space))

    def counted(self) -> list[FrozenTrial]:
        """Trials that have ended or are running anywhere, without lost ones."""
        waiting = load_optuna().trial.TrialState.WAITING
        return [trial for trial in self._all() if trial.state != waiting and not trial.user_attrs.get(_LOST)]

    def report(self, asked: Asked, step: int, value: float) -> bool:
        """Stores an evaluation of the metric. Returns True if the trial should be pruned."""
        with self._lock:
            asked.trial.report(value, step)
            return bool(asked.trial.should_prune())

    def complete(self, asked: Asked, value: float, about: Mapping[str, Any]) -> None:
        """Stores a trial's value, and further information about it."""
        self._end(asked, "COMPLETE", value, about)

    def prune(self, asked: Asked, about: Mapping[str, Any]) -> None:
        """Stores a trial that was ended before its last round."""
        self._end(asked, "PRUNED", None, about)

    def fail(self, asked: Asked, reason: str) -> None:
        self._end(asked, "FAIL", None, {_REASON: reason})

    def records(self) -> list[TrialRecord]:
        return [self._record(trial) for trial in self._all()]

    def best(self) -> TrialRecord | None:
        """The completed trial with the best value, the first of equals; None if there is none."""
        best: TrialRecord | None = None
        for record in self.records():
            if record.state != "complete" or record.value is None:
                continue
            if best is None or best.value is None or self.goal.better(record.value, best.value):
                best = record
        return best

    def _end(self, asked: Asked, state: str, value: float | None, about: Mapping[str, Any]) -> None:
        with self._lock:
            for key, content in about.items():
                asked.trial.set_user_attr(key, content)
            self.study.tell(asked.trial, value, state=load_optuna().trial.TrialState[state])

    def _running(self) -> list[FrozenTrial]:
        return [trial for trial in self._all() if trial.state == load_optuna().trial.TrialState.RUNNING]

    def _all(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _record(self, trial: FrozenTrial) -> TrialRecord:
        about = trial.user_attrs
        state = "lost" if about.get(_LOST) else {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
        steps = trial.intermediate_values
        value = steps[max(steps)] if state == "pruned" and steps else trial.value
        drawn = _drawn(trial)
        values = {one.key: one.value(drawn[one.key]) for one in self.space if one.key in drawn}
        return TrialRecord(
            trial.number,
            state,
            value,
            tuple(setting(key, each) for key, each in values.items()),
            values,
            len(steps),
            about.get("seconds"),
            str(about.get(_REASON, "")),
            about.get("error"),
        )


def load_optuna() -> Any:
    """Imports Optuna. Raises EnvironmentFault if it is missing."""
    try:
        import optuna  # noqa: PLC0415
    except ImportError:
        raise EnvironmentFault("a search needs Optuna", hint="pip install 'colonnade[tune]'") from None
    return optuna


def open_store(
    storage: str, name: str, space: Sequence[Searched], goal: SearchMetric, *, place: str, seed: int, pruner: str
) -> TrialStore:
    """Opens or creates a study.

    Args:
        storage: a database URL as SQLAlchemy takes it, or `journal:PATH`; "" for this process's memory.
        place: number of this process's folder.
    """
    optuna = load_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(
                storage=_storage(optuna, storage),
                study_name=name,
                direction=goal.direction,
                pruner=_pruner(optuna, pruner),
                load_if_exists=True,
            )
    except InputError:
        raise
    except Exception as failed:
        first = str(failed).strip().splitlines()[0] if str(failed).strip() else type(failed).__name__
        raise EnvironmentFault(
            f"--storage {masked(storage)} cannot be opened: {first}",
            hint="for example sqlite:///search.db, postgresql+psycopg://USER@HOST/DATABASE or journal:PATH",
        ) from failed
    return TrialStore(study, space, goal, seed, place)


def masked(storage: str) -> str:
    """Hides the password in a URL."""
    scheme, separator, rest = storage.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{user.split(':')[0]}{at}{host}" if at else storage


def commonest(reasons: Sequence[str]) -> tuple[str, int]:
    return Counter(reasons).most_common(1)[0]


def _storage(optuna: Any, wanted: str) -> Any:
    if not wanted:
        return None
    if wanted.startswith(_JOURNAL):
        path = str(Path(wanted.removeprefix(_JOURNAL)).expanduser().resolve())
        journal = optuna.storages.journal
        lock = journal.JournalFileOpenLock(path)
        return optuna.storages.JournalStorage(journal.JournalFileBackend(path, lock_obj=lock))
    if "://" not in wanted:
        raise InputError(
            f"--storage {wanted}: expected a database URL, or journal:PATH",
            hint="for example sqlite:///search.db or journal:search.log",
        )
    return wanted


def _pruner(optuna: Any, wanted: str) -> Any:
    if wanted == "none":
        return optuna.pruners.NopPruner()
    if wanted == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=WARM_UP)
    return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=WARM_UP)


def _suggested(trial: Any, one: Searched) -> Any:
    values = one.values
    if values.choices:
        return trial.suggest_categorical(one.key, one.labels)
    if values.integer:
        return trial.suggest_int(one.key, int(values.low or 0), int(values.high or 0), log=values.log)
    return trial.suggest_float(one.key, values.low, values.high, log=values.log)


def _drawn(trial: FrozenTrial) -> dict[str, Any]:
    """Values that the sampler has drawn, or was told to take."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _derived(seed: int, number: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr((seed, number)).encode(), digest_size=4).digest())
