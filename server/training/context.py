"""Context of a protocol's server side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.config.models import user_parts
from colonnade.common.config.run_options import POISSON, Quorum, with_lower_rates
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.draws import Draws, SecretDraws
from colonnade.common.data.labels import CountScale, LabelColumn, TargetScale
from colonnade.common.errors import CheckpointError, DataError
from colonnade.common.messaging.message import Message
from colonnade.common.models import admm
from colonnade.common.models.backprop import refuse_batch_norm
from colonnade.common.models.losses import CrossEntropy, Objective, PoissonDeviance, Squared
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.privacy.labels import NoisyLabels, posterior
from colonnade.common.run.phases import EVALUATION, Phases
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.state import Snapshot, State
from colonnade.server.privacy import ResponseNoise, RowReleases
from colonnade.server.training.classes import ClassBalance, LabelParts, WeightedCrossEntropy, balanced
from colonnade.server.training.metrics import decision
from colonnade.server.training.metrics.best import TWO_CLASSES, Best, Fall
from colonnade.server.training.metrics.decision import Bools, Decision, Floats
from colonnade.server.training.metrics.quality import Score, margins
from colonnade.server.training.metrics.residuals import Residuals
from colonnade.server.training.outside import OutsideLoss, OutsideMetrics
from colonnade.server.training.watch import GrowthWatch

MEANS = "mean outputs"  # key in the state: each party's mean output, which can replace an absent party

_SCORES = "scores of rows"
_POSITIVE = "positive rows"
_OF_BEST = ("details", _SCORES, _POSITIVE, "absent", MEANS)
"""Keys in the state that belong to the best round, which an earlier start of the run may have had."""

_PREFIX = {"validation": "val"}  # of the names of a part's metrics


@dataclass
class ServerContext:
    """Labels, schedule, state and record of a run.

    Attributes:
        labels: classes of all rows, int64 (rows,), on the device; -1 where noisy labels replace them. In regression the
            targets, float32 (rows, targets): passed unscaled, stored on the scale of `scale`.
        scale: scaling of the targets; None in classification.
        draws: for initial weights, dropout and the like; never for noise or keys.
        balance: class sizes among the training rows, estimated where the labels are noisy; None in regression.
        backed_off: number of rollbacks after a divergence; `config` has the lowered learning rates.
        columns: the active party's: `columns[rows]` is float32 (rows, ...).
        trained_as: row numbers in training, int64 (rows,); -1 for new rows.
        noisy: the protected training labels; None if labels are not protected.
        releases: number of releases of each label, if responses are protected; a new session does not reset it.
        traffic: bytes on the wire so far, up and down.
        round: the last completed one.
        clock: seconds from an arbitrary origin.
        identity: None on loopback without TLS.
        run_cache: values computed once in a run.
        thorough: True to compute every metric in every evaluation, not only after the last round.
        classes: class names in the order of their numbers; empty in regression.
        weights: row weights, float64 (rows,), used in training only; None if rows count alike.
        ids: keys of all rows; None if they have none.
    """

    federation: FederationConfig
    config: ServerConfig
    labels: Tensor
    schedule: Schedule
    telemetry: Telemetry
    base: Path = Path()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    draws: Draws = field(default_factory=SecretDraws.fresh)
    state: State = field(default_factory=State)
    traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)
    round: int = 0
    clock: Callable[[], float] = time.monotonic
    columns: Columns | None = None
    trained_as: Callable[[Tensor], Tensor] = lambda rows: rows
    noisy: NoisyLabels | None = None
    releases: RowReleases | None = None
    session: Session = field(default_factory=Session)
    identity: Identity | None = None
    run_cache: RunCache = field(default_factory=RunCache)
    phases: Phases = field(default_factory=Phases)
    thorough: bool = False
    classes: tuple[str, ...] = ()
    weights: Tensor | None = None
    ids: Sequence[str] | None = None
    scale: TargetScale | None = field(default=None, init=False)
    balance: ClassBalance | None = field(default=None, init=False)
    watch: GrowthWatch = field(init=False)
    backed_off: int = field(default=0, init=False)
    _configured: ServerConfig = field(init=False)
    _parts: LabelParts | None = None
    _one_class: bool = False  # of the validation rows
    _evidence: Tensor | None = None
    _right: float | None = None
    _begun: float = 0.0
    _open: dict[str, Callable[[], tuple[dict[str, float], dict[str, Any]]]] = field(default_factory=dict)
    """Of the newest evaluation, if its further metrics are not computed: how to compute them, by prefix."""

    def __post_init__(self) -> None:
        self.watch, self._configured = GrowthWatch(self.telemetry), self.config
        self.take(self.labels, self.schedule, self.weights)

    def take(self, labels: Tensor, schedule: Schedule, weights: Tensor | None) -> None:
        """Sets the labels (unscaled), the schedule and the weights. Raises DataError if every training row has weight
        0.
        """
        self.labels, self.schedule, self.weights = labels, schedule, weights
        if weights is not None and not bool(weights[schedule.partition.train.cpu()].any()):
            raise DataError("all training rows have the weight 0", hint="weigh some, or leave server.labels.weight out")
        self._parts = parts = LabelParts(labels, schedule.partition, self.classes or self.federation.outputs)
        if self.federation.task == "regression":
            scale = CountScale if self.federation.loss == POISSON else TargetScale
            self.scale = scale.fit(labels.cpu(), schedule.partition.train)
            self.labels = self.scale.apply(labels)
        else:
            self.balance = ClassBalance(parts.counts["training"])
            self._one_class = len([*filter(None, parts.counts.get("validation", ()))]) < 2

    @cached_property
    def loss(self) -> Objective:
        """The training loss: a plug-in, squared loss (regression), or cross-entropy with or without class weights."""
        if isinstance(self.scale, CountScale):
            return PoissonDeviance()
        if self.federation.loss:
            return OutsideLoss(self.federation.loss)
        if self.scale is not None:
            return Squared()
        weights = self.config.class_weights
        if weights == "none":
            return CrossEntropy()
        if weights == "balanced":
            of_rows = balanced(self.labels[self.schedule.partition.train], self.federation.outputs)
            return WeightedCrossEntropy(of_rows)
        return WeightedCrossEntropy(torch.tensor(weights, dtype=torch.float64))

    def score(self) -> Score | Residuals:
        if self.scale is not None:
            return Residuals(self.scale)
        return Score(None if self.balance is None else self.balance.commonest)

    @cached_property
    def extra_metrics(self) -> OutsideMetrics:
        return OutsideMetrics(self.config.extra_metrics, self.warn)

    @property
    def labels_released(self) -> int:
        """Number of training labels released with noise; 0 if labels are not protected."""
        return 0 if self.noisy is None else self.noisy.released

    def protect(self, noisy: NoisyLabels | None) -> None:
        """Replaces the labels of the training rows by noisy ones and drops the true ones; None changes nothing."""
        if noisy is None:
            return
        train, shape = self.schedule.partition.train, (len(self.labels), noisy.values.shape[1])
        self.noisy, self.labels = noisy, self.labels.clone()
        self.balance = ClassBalance.estimated(noisy.counts())
        self.labels[train] = -1  # using these by mistake fails
        self._evidence = torch.zeros(shape, device=self.device)
        self._evidence[train] = noisy.evidence().to(self.device, torch.float32)

    def protection(self, head: nn.Module) -> ResponseNoise | None:
        """Noise on responses computed with `head`; None if they are not protected.

        Raises InputError if the head mixes rows, so that one row's contribution cannot be clipped.
        """
        config = self.config.privacy.answers
        if config is None:
            return None
        refuse_batch_norm(head, "server.head")
        assert self.releases is not None  # set when the run is opened
        return ResponseNoise(config, self.releases, self.state, self.federation.seed)

    def targets(self, batch: Tensor, logits: Tensor) -> Tensor:
        """Targets of the loss for training rows (int64), with the model's current logits as the prior of noisy labels.

        Returns class numbers, int64 (rows,); with noisy labels, distributions (rows, classes); in regression, scaled
        targets (rows, targets).
        """
        if self._evidence is not None:
            self._release(batch, logits)
            return posterior(logits, self._evidence[batch])
        labels = self.labels[batch]
        if self.scale is None:
            self._right = (logits.detach().argmax(-1) == labels).float().mean().item()
        return labels

    def _release(self, batch: Tensor, logits: Tensor) -> None:
        """Releases the noisy labels of these rows, int64 (rows,), that waited for a prediction, (rows, classes)."""
        if self.noisy is None or (pending := self.noisy.pending) is None or self._evidence is None:
            return
        if len(new := pending.release(batch, logits)):
            found = self.noisy.noise.evidence(self.noisy.values[new])
            self._evidence[self.schedule.partition.train[new]] = found.to(self.device, torch.float32)

    def minimise_z(self, batch: Tensor, dual: Tensor, total: Tensor, rho: float) -> tuple[Tensor, Tensor]:
        """VIMADMM's Eq. 5 for training rows, with the true labels or their noisy releases.

        Arguments as in `admm.minimise_z`. Returns z, (rows, classes), and the targets at `total`.
        """
        y, loss, config = self.targets(batch, total), self.loss, self.config.privacy.labels
        if config is not None and config.likelihood(rho):
            return admm.minimise_released_z(partial(self.targets, batch), dual, total, rho, loss), y
        return admm.minimise_z(y, dual, total, rho, loss), y

    @property
    def own_code(self) -> list[str]:
        """Names of the server's models that are user code, for error messages."""
        active = self.config.active
        return user_parts(head=self.config.head, **({} if active is None else {"active model": active.model}))

    @property
    def metrics(self) -> dict[str, float]:
        return self.state.keep("metrics", dict)

    @property
    def missing(self) -> dict[str, int]:
        return self.state.keep("missing", dict)

    @property
    def absent(self) -> dict[str, float]:
        """By party: validation accuracy (in regression RMSE) with that party replaced by its mean output."""
        return self.state.keep("absent", dict)

    @property
    def plain_metric(self) -> str:
        return "accuracy" if self.scale is None else "rmse"

    @property
    def measure(self) -> str:
        """The metric that judges the model: `plain_metric`, or another if classes are unequal or rows are weighted."""
        if isinstance(self.scale, CountScale):
            return "loss"
        return self.plain_metric if self.balance is None else self.balance.measure

    @property
    def positive(self) -> str | None:
        """The class that AUC, average precision, KS, gain and lift refer to: the second of two; else None."""
        return self.classes[1] if len(self.classes) == 2 else None

    @property
    def best(self) -> Best:
        """The best evaluation so far; tracked only with early stopping."""
        return Best(self.federation.stop, self.state.keep("best", dict), self.stop_metric, self.schedule.patience)

    @property
    def stop_metric(self) -> str:
        """The metric of `federation.stop`.

        By default the measure; the loss if validation rows do not define the measure, and for models that grow from all
        rows, whose accuracy changes too little in a round.
        """
        stop, whole = self.federation.stop, self.federation.protocol.full_batch
        if stop is not None and stop.metric != "measure":
            return stop.metric or self.plain_metric
        if stop is not None and whole:
            return "loss"
        return "loss" if self._one_class and self.measure in TWO_CLASSES else self.measure

    @property
    def fall(self) -> Fall:
        return Fall(self.state.keep("fall", dict), self.stop_metric)

    @property
    def decision(self) -> Decision | None:
        """The rule from probabilities to classes of the last round's model; None to take the most likely class."""
        return self.rule(self.round)

    def rule(self, round: int) -> Decision | None:
        """The rule that the configuration gives to the model of a round, the last or the best one.

        It is the one that was chosen when the last round was evaluated; else, if the configuration has changed since,
        or for the best round, the one that follows from the scores of that round. None if there is neither.
        """
        decide, calibrate = self.config.decide, self.config.calibrate
        if decide is None and calibrate == "none":
            return None
        state = self.state if round == self.round else State()
        if (made := decision.kept(state, decide, calibrate)) is not None:
            return made
        if round != self.scored or "validation" not in self._positive:
            return None
        return decision.choose(decide, calibrate, *self._judged("validation"), round)

    def doubts(self, round: int) -> Iterator[str]:
        """What a model that predicts lacks, although it was asked for: the last round's or the best one's."""
        key = "decide" if self.config.decide is not None else "calibrate"
        if (key == "decide" or self.config.calibrate != "none") and self.rule(round) is None:
            yield (
                f"server.{key} does not apply to the model of round {round}, which has left no scores of validation "
                "rows to choose by: the likelier class is taken, and probabilities are the model's own"
            )
        if round == self.schedule.rounds == self.scored and self.schedule.evaluations(round) and not self.details:
            yield (
                f"round {round} was not evaluated as the last one, which it was not when it was trained: its metrics "
                "are as far as known; resume the run with more federation.epochs or federation.rounds"
            )

    def decide_again(self) -> None:
        """Follows settings that have changed since the restored round: the rule, and what was measured by the old."""
        if not decision.keep(self.state, made := self.decision):
            return
        self._drop_metrics(*(f"{part}_{what}" for part in ("val", "test") for what in ("decided", "calibrated")))
        if made is not None and self.scored == self.round:
            for part in self._positive:
                found = decision.measures(made, *self._judged(part))
                self.metrics.update({f"{_PREFIX.get(part, part)}_{name}": value for name, value in found.items()})

    @property
    def details(self) -> dict[str, Any]:
        """Results of the final evaluation that are too large for a metric, by part of the rows."""
        return self.state.keep("details", dict)

    @property
    def scores(self) -> dict[str, Tensor]:
        """The model's log-odds of the second of two classes by part of the rows, float64, in the partition's order.

        Training rows are included only where the server can compute them alone; empty with more classes.
        """
        return self.state.keep(_SCORES, dict[str, Tensor])

    @property
    def scored(self) -> int:
        """The round whose model the details and the scores are of."""
        return self.best.round or self.round

    @property
    def _positive(self) -> dict[str, Tensor]:
        """True for the evaluated rows of the second of two classes, bool, by part; by these a rule can be chosen."""
        return self.state.keep(_POSITIVE, dict[str, Tensor])

    def _judged(self, part: str) -> tuple[Floats, Bools]:
        return self.scores[part].numpy(), self._positive[part].numpy()

    def findings(self) -> dict[str, Any]:
        """The details, with those of the decision by part."""
        if (made := self.rule(self.scored)) is None:
            return dict(self.details)
        decided = {part: decision.details(made, *self._judged(part)) for part in self._positive}
        return {part: found | {"decision": decided.get(part)} for part, found in self.details.items()}

    @property
    def stopped(self) -> str:
        """Why the run ended before its last round, or ""."""
        return self.best.stop if self.round < self.schedule.rounds else ""

    @property
    def over(self) -> bool:
        """True if no round follows: the run stopped early, or its model has converged."""
        return bool(self.best.stop) or self.round >= self.schedule.rounds

    def of_model(self, round: int) -> bool:
        """True if an evaluated round is the best so far, or the last if no best round is tracked."""
        return self.best.round == round if self.best.round else round == self.schedule.rounds

    @property
    def quorum(self) -> Quorum:
        return self.federation.round_quorum

    def restore(self, round: int, snapshot: Snapshot | None, backed_off: int = 0) -> None:
        """Restores the state after a round (0: the beginning) and restarts its clock; rollbacks lower the rates."""
        self.config, self.backed_off = with_lower_rates(self._configured, backed_off), backed_off
        self.state, self.round = State(snapshot), round
        self._open.clear()
        for name in _OF_BEST:
            if snapshot is not None and name in snapshot.values:
                self.state.keep(name, dict[str, Any])
        self.watch.begin(self.state, round)
        self._begun = self.clock()

    def confirm(self) -> None:
        """Raises CheckpointError if the targets differ from those that the run began with, DataError if the metric of
        `federation.stop` is not defined on the validation rows.
        """
        self._refuse_undefined()
        if self.scale is not None and self.state.keep("targets", self.scale.record) != self.scale.record():
            raise CheckpointError(
                "the numbers to be predicted are not those that the run began with",
                hint="restore server.labels, or begin a new run",
            )

    def look_at_classes(self) -> None:
        """Warns once about parts of the settled rows that lack a class.

        Raises DataError if all training rows have one class and nothing was trained yet (with private labels only a
        warning: a refusal would reveal it to others); or if `server.decide` or `server.calibrate` have no validation
        rows of a class.
        """
        if (parts := self._parts) is None:
            return
        self._parts = None
        if not self.round and self.config.privacy.labels is None and self.config.privacy.answers is None:
            parts.refuse_one()
        for reason in (*parts.warnings(), *parts.few(self.config.decide, self.config.calibrate)):
            self.warn(reason)

    def _refuse_undefined(self) -> None:
        rows, metric = len(self.schedule.partition.validation), self.stop_metric
        if self.federation.stop is not None and metric in TWO_CLASSES and self._one_class:
            raise DataError(
                f"federation.stop.metric = {metric}: all {rows} validation rows have one class, so that it is "
                "not defined",
                hint="give more validation rows in federation.rows, or stop by another metric, such as loss",
            )

    def record(self, round: int, loss: float, responses: Responses[Message]) -> None:
        """Records a training round. Raises TrainingDiverged if the loss or a head is not finite, ConfigError if the
        protocol has not used the loss that the configuration names.
        """
        if isinstance(self.loss, OutsideLoss):
            self.loss.refuse_unused(self.federation.protocol.name)
        self.metrics["train_loss"] = loss
        self._enter(round, responses, loss=loss)
        self.watch.round(round, loss)

    def _enter(self, round: int, responses: Responses[Message], **learned: float) -> None:
        for party in sorted(set(responses.missing).intersection(self.schedule.participants(round))):
            self.missing[party] = self.missing.get(party, 0) + 1
            self.telemetry.event("missing", round=round, party=party)
        if self._right is not None:
            learned["right"] = round_off(self._right)  # share of the batch predicted correctly before its step
        self.telemetry.event("round", round=round, **learned, **self._progress(round, responses))
        self.round, self._right = round, None
        if not self.best.round and "details" in self.state and self.details:
            self._forget_findings()
        if self.schedule.evaluations(round):
            self.phases.turn(EVALUATION)

    def _forget_findings(self) -> None:
        """Drops what an earlier start of the run found of its last model: this one's is a later one."""
        for found in (self.details, self.scores, self._positive, self.absent):
            found.clear()
        self._drop_metrics("val", "test")

    def _drop_metrics(self, *parts: str) -> None:
        for key in [key for key in self.metrics if key.startswith(tuple(f"{part}_" for part in parts))]:
            del self.metrics[key]

    def skip(self, round: int, responses: Responses[Message]) -> None:
        """Records a round without a loss: too few parties responded to learn from it."""
        self.telemetry.event("skipped", round=round, answers=len(responses))
        self._enter(round, responses)

    def warn(self, reason: str) -> None:
        """Adds a warning to the run's record and progress lines."""
        self.telemetry.event("warning", party=SERVER, reason=reason)

    def _progress(self, round: int, responses: Responses[Message]) -> dict[str, Any]:
        now = self.clock()
        seconds, self._begun = now - self._begun, now
        up, down = self.traffic()
        slow = {"party": responses.slowest, "seconds": round_off(responses.lag)}
        whole = self.federation.protocol.full_batch
        epoch = {} if whole else {"epoch": round_off(self.schedule.epoch(round))}
        return {"rounds": self.schedule.rounds, **epoch, "seconds": round_off(seconds), "bytes_up": up,
                "bytes_down": down, "slowest": slow}  # fmt: skip

    def evaluated(self, round: int, part: str, score: Score | Residuals, **more: float) -> None:
        """Records an evaluation of a part, with the metrics in `more`. A run's last evaluation has further metrics."""
        if part == "validation":
            self._decide(round, score)
        metrics, prefix = self._measured(score) | more, _PREFIX.get(part, part)
        judged: dict[str, Any] = {}
        if self.thorough:
            found, details = score.closer()
            metrics |= found
            judged = {"errors": score.errors(), "chance": details.get("chance")}
        else:
            metrics |= score.some({self.measure, self.stop_metric} - set(metrics))
        named = {f"{prefix}_{name}": value for name, value in metrics.items()}
        self._drop_metrics(prefix)  # of an earlier round: only a last evaluation measures all of them
        self.metrics.update(named)
        self.telemetry.event("evaluation", round=round, part=part, **named, **judged)
        self._judge(round, part, metrics)
        self._open[prefix] = closer = cache(score.closer)
        if round == self.schedule.rounds or self.best.stop:
            self.complete()
        if self.keeps(round):
            if details := closer()[1]:
                self.details[part] = details
            if isinstance(score, Score) and self.positive is not None:
                self.keep_scores(part, score.logits)
                self._positive[part] = torch.from_numpy(score.margins()[1])
        if part == "validation":
            error = score.errors().get(self.stop_metric, 0.0)
            if self.fall.enter(round, metrics.get(self.stop_metric, math.nan), error):
                self.warn(self.fall.reason)
            if self.stopped:
                self.telemetry.event("stopped", round=round, reason=self.stopped)

    def complete(self) -> None:
        """Adds the further metrics of the newest evaluation, after which the run may end, or be resumed to its end."""
        for prefix, closer in self._open.items():
            self.metrics.update({f"{prefix}_{name}": value for name, value in closer()[0].items()})
        self._open.clear()

    def keeps(self, round: int) -> bool:
        """True if an evaluated round's results are kept because its model may be the run's."""
        last = round == self.schedule.rounds or self.best.stop or self.federation.stop is not None
        return bool(last) and self.best.round in (0, round)

    def keep_scores(self, part: str, logits: Tensor) -> None:
        """Keeps the scores of a part's rows, from logits (rows, classes) in the partition's order; two classes only."""
        if self.positive is not None:
            self.scores[part] = torch.from_numpy(margins(logits))

    def _judge(self, round: int, part: str, metrics: dict[str, float]) -> None:
        best, metric = self.best, self.stop_metric
        also = {self.plain_metric, self.measure}
        if best.config is not None and best.config.metric is not None:
            also.add("loss")  # breaks ties
        best.enter(round, part, metrics.get(metric, math.nan), **{name: metrics.get(name, math.nan) for name in also})

    def _measured(self, score: Score | Residuals) -> dict[str, float]:
        found = self.extra_metrics.of(*score.arrays()) if self.config.extra_metrics else {}
        if (made := self.decision) is not None and isinstance(score, Score):
            found = {**found, **decision.measures(made, *score.margins())}
        return {**found, **score.metrics}

    def _decide(self, round: int, score: Score | Residuals) -> None:
        decide, calibrate, made = self.config.decide, self.config.calibrate, None
        if isinstance(score, Score) and (decide is not None or calibrate != "none"):
            made = decision.choose(decide, calibrate, *score.margins(), round)
        decision.keep(self.state, made)


def round_off(seconds: float) -> float:
    return round(seconds, 6)


def check_labels(labels: LabelColumn, federation: FederationConfig) -> None:
    """Raises DataError if classes or number of targets differ from the agreed ones, or counts are invalid."""
    if federation.task == "regression":
        if federation.loss == POISSON:
            labels.refuse_no_counts()
        if (width := labels.values.shape[1]) != federation.outputs:
            raise DataError(
                f"federation.targets says {federation.outputs} numbers a row, the labels have {width}",
                hint="mend federation.targets, in every party's file too, or server.labels",
            )
        return
    found, doubts = len(labels.classes), map(str, labels.doubts)
    if found != federation.outputs:
        raise DataError(
            f"federation.classes says {federation.outputs} classes, the labels have {found} "
            f"({', '.join(labels.classes[:20])})",
            hint="; ".join(["mend federation.classes, in every party's file too, or server.labels", *doubts]),
        )
    if not isinstance(federation.classes, int) and tuple(federation.classes) != tuple(labels.classes):
        same = set(federation.classes) == set(labels.classes)
        order = " in this order" if same else ""
        raise DataError(
            f"federation.classes are {', '.join(federation.classes)}; "
            f"the labels have {', '.join(labels.classes)}{order}",
            hint=f"say `classes: [{', '.join(map(repr, labels.classes))}]` in every member's file, or mend the labels; "
            "case counts, and white space around a name in the table is no part of it",
        )
