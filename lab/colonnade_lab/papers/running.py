"""Performs one run of a paper's list on the virtual clock."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import AllSplit, PartyIndex
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.data.formats.idx import IdxImages, holds, read_labels
from colonnade.common.data.known_sets.catalogue import cache, find
from colonnade.common.data.split import part_of
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.common.version import VERSION
from colonnade.server.training.fusion.heads import linear_heads
from colonnade.simulation.federation import Outcome, Simulation
from colonnade.simulation.folder import summarise
from colonnade_lab.papers.measures import TRAINING, Point, RunRecord
from colonnade_lab.papers.papers import PaperRun

_SAYS_NOTHING = re.compile(r"^ *(public_start:.*|stop: none)\n", re.MULTILINE)
_THEOREM = ("zeta", "variance", "epsilon")


@dataclass(frozen=True)
class Job:
    """A run with a seed."""

    paper: str
    name: str
    run: PaperRun
    seed: int

    @property
    def sets(self) -> tuple[str, ...]:
        return (*self.run.set, f"federation.seed={self.seed}")

    @property
    def digest(self) -> str:
        """Digest of the file and its changes: a result is valid while it stays the same.

        `federation.public_start` does not count: a run in one process draws all starts from the seed in any case. Nor
        does `federation.stop: none`, which was the default up to 0.2.0.
        """
        text = _SAYS_NOTHING.sub("", self.run.path.read_text(encoding="utf-8"))
        said = json.dumps([text, [each for each in self.sets if not each.startswith("federation.public_start=")]])
        return hashlib.sha256(said.encode()).hexdigest()[:16]


def perform(job: Job) -> RunRecord:
    _prepare(job)
    begun = time.perf_counter()
    record = simulate(job)
    return record.model_copy(update={"wall": round(time.perf_counter() - begun, 1)})


def _prepare(job: Job) -> None:
    """Makes derived data sets, in the folder where downloads are kept."""
    if any(NAME in each for each in job.sets):
        make(cache())


@dataclass
class Course:
    """Measures collected during a run. Bytes are those of training messages."""

    points: list[Point] = field(default_factory=list)
    _links: Mapping[str, Any] = field(default_factory=dict)
    _epoch: float = 0.0
    _begun: float = 0.0
    _right: list[tuple[float, float]] = field(default_factory=list)

    def watch(self, cohort: Cohort) -> None:
        self._links = cohort

    def __call__(self, event: Event) -> None:
        if event["kind"] == "begin":
            self._begun = float(event["time"])
        if event["kind"] == "round":
            self._epoch = float(event.get("epoch", self._epoch))
            if (right := event.get("right")) is not None:
                self._right.append((self._epoch, float(right)))
        if event["kind"] != "evaluation" or event.get("test_accuracy") is None:
            return
        sent, seconds = sum(self.bytes), round(float(event["time"]) - self._begun, 6)
        accuracy = round(float(event["test_accuracy"]), 6)
        point = Point(round=event["round"], epoch=self._epoch, seconds=seconds, bytes=sent, accuracy=accuracy)
        self.points.append(point)

    @property
    def training(self) -> float | None:
        """Share of training rows that were right when trained on, over the last epoch; None if not reported."""
        last = [right for epoch, right in self._right if epoch > self._epoch - 1 + 1e-6]
        return round(statistics.fmean(last), 6) if last else None

    @property
    def bytes(self) -> tuple[int, int]:
        links = self._links.values()
        up, down = ([link.traffic.received for link in links], [link.traffic.sent for link in links])
        return _training(up), _training(down)


def _training(books: list[Any]) -> int:
    return sum(size for book in books for kind, (_, size) in book.items() if kind != "Evaluation")


def simulate(job: Job, *listeners: Callable[[Event], None]) -> RunRecord:
    """Runs a job on the virtual clock in this process, with additional event listeners. Its wall time stays 0."""
    torch.set_num_threads(1)
    config = load(job.run.path, job.sets)
    course = Course()
    telemetry = Telemetry(None, course, *listeners)
    outcome = Simulation(config, job.run.path.parent, telemetry=telemetry, on_cohort=course.watch).run()
    record = run_record(summarise(outcome), course)
    return record.model_copy(update={"metrics": record.metrics | _head_norms(outcome)})


def _head_norms(outcome: Outcome) -> dict[str, float]:
    """Norm of every party's linear head at the server, and that over its initial norm; empty without such heads."""
    server = outcome.server
    heads = server.state["heads"] if "heads" in server.state else None  # noqa: SIM401  # a State has no get
    if not isinstance(heads, Tensor):
        return {}
    names, draws = server.federation.names, linear_heads(server, *heads.shape[:2])
    norms, firsts = (each.detach().flatten(1).norm(dim=1).tolist() for each in (heads, draws))
    growths = [round(norm / first, 6) for norm, first in zip(norms, firsts, strict=True)]
    found = {"norm": norms, "growth": growths}
    return {f"head_{kind}_{name}": one for kind, each in found.items() for name, one in zip(names, each, strict=True)}


def run_record(found: dict[str, Any], course: Course) -> RunRecord:
    sizes, points = course.bytes, tuple(course.points)
    metrics = dict(found["metrics"]) | ({} if course.training is None else {TRAINING: course.training})
    confusion = ((found.get("details") or {}).get("test") or {}).get("confusion") or []
    classes = tuple(round(row[c] / max(1, sum(row)), 6) for c, row in enumerate(confusion))
    return RunRecord(
        metrics={key: round(float(number), 6) for key, number in metrics.items()},
        points=points,
        classes=classes,
        tested=sum(map(sum, confusion)),
        rounds=found["rounds"],
        parties=len(found["parties"]),
        bytes_up=sizes[0],
        bytes_down=sizes[1],
        epsilon=_epsilon(found),
        theorem={key: float(f"{found['theorem'][key]:.4g}") for key in _THEOREM if found.get("theorem")},
        wall=0,
        version=VERSION,
    )


def _epsilon(found: dict[str, Any]) -> float | None:
    """The accounted epsilon, even if clean evaluations or seeded noise void the guarantee."""
    if not (privacy := found.get("privacy")):
        return (found.get("answer_privacy") or {}).get("accounted")
    adjacency = next(iter(privacy["epsilon"]))
    return max((spent for spent in privacy["epsilon"][adjacency].values() if spent is not None), default=None)


NAME = "mnist-longtail"

_SIZES = (6000, 4645, 3596, 2784, 2156, 1669, 1292, 1000, 774, 600)
_UBYTE = 0x08


def make(folder: Path) -> Path:
    """Writes the four idx files below `folder`, unless they exist.

    Rows keep their order. A class with fewer rows than the paper lists (the first has 5,923) is used whole.
    """
    made = folder / NAME
    if holds(made, "images-idx3") and holds(made, "labels-idx1"):
        return made
    source = find("mnist", Path(), lambda path: holds(path, "images-idx3"), "images in idx format")
    labels, test = read_labels(source)
    images = IdxImages(source)
    pixels = images.read(part_of(AllSplit(), images.shape, images.names, PartyIndex(0, 1))).numpy().astype(np.uint8)
    train = len(labels) - test
    kept = torch.cat([torch.nonzero(labels[:train] == c).flatten()[:size] for c, size in enumerate(_SIZES)])
    rows = kept.sort().values.numpy()
    files = {}
    for part, index in (("train", rows), ("t10k", np.arange(train, len(labels)))):
        files[f"{part}-images-idx3-ubyte"] = pixels[index].reshape(len(index), *images.shape)
        files[f"{part}-labels-idx1-ubyte"] = labels.numpy()[index].astype(np.uint8)
    _write(made, files)
    return made


def _write(made: Path, files: Mapping[str, np.ndarray]) -> None:
    """Writes each file atomically: several runs make them concurrently, and any may be killed."""
    made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made, prefix=".making-") as scratch:
        for name, values in files.items():
            header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UBYTE, values.ndim, *values.shape)
            whole = Path(scratch) / name
            whole.write_bytes(header + values.tobytes())
            whole.replace(made / name)
