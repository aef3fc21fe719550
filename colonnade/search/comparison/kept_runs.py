"""Stored results of a comparison's runs, one file each. Stored runs are not repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.common.run.durable import write_kept
from colonnade.common.version import VERSION
from colonnade.search.folder import digest

DONE, PRUNED, DIVERGED, FAILED, LOST = "ok", "pruned", "diverged", "failed", "lost"
"""Ends of a run. A lost one, whose process was killed, is not kept and runs again."""


@dataclass(frozen=True)
class KeptRun:
    """Result of a run.

    Args:
        reason: of a run that diverged or failed.
        metrics: of the validation rows, in the round that counts.
        tested: of the test rows in the same round, if evaluated.
        evaluations: metrics of the validation rows at every evaluation.
        round, rounds: the round that counts, and the number of rounds.
        seconds: of computing.
        payload: bytes of tensors between the parties and the server.
        errors, validation_errors: standard errors of some metrics of the test rows, and of the validation rows.
        chance: the verdict on the test rows, if any.
    """

    state: str
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tested: Mapping[str, float] = field(default_factory=dict)
    evaluations: tuple[Mapping[str, float], ...] = ()
    round: int = 0
    rounds: int = 0
    seconds: float = 0.0
    payload: int = 0
    errors: Mapping[str, float] = field(default_factory=dict)
    chance: Mapping[str, Any] | None = None
    validation_errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def at_chance(self) -> bool:
        """True if the test rows do not show that the model is better than one without columns."""
        return self.chance is not None and not self.chance["above"]

    def has(self, metric: str, *, tested: bool) -> bool:
        """True if it has the metric wherever it is needed; a failed run needs none."""
        if self.state in (DIVERGED, FAILED):
            return True
        known = [*self.evaluations, self.metrics, *((self.tested,) if tested else ())]
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
            found.pop("about", None)
            run = KeptRun(**{**found, "evaluations": tuple(found["evaluations"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None if run.state == FAILED else run

    def keep(self, key: str, run: KeptRun, about: Mapping[str, Any]) -> None:
        """Writes a result atomically; `about` is information for readers of the file."""
        content = json.dumps({"about": dict(about), **asdict(run)}, indent=1)
        write_kept(self._path(key), content.encode(), in_new=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key[:40]}.json"
