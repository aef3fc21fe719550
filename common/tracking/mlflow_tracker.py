"""MLflow, through its client: no global state of MLflow is used, and no service of it is started."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.files import open_own
from colonnade.common.tracking.mlflow_section import FOLDERS, SQLITE, MlflowConfig
from colonnade.common.tracking.tracker import Parameter, Status, TrackedRun

_BATCH = 500  # metrics of a request; MLflow takes 1000
_PARAMETERS = 100  # of a request
_LONGEST = 500  # characters of a parameter
_STATUS: Mapping[Status, str] = {"completed": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowTracker:
    """One start of a run at MLflow; the id of MLflow's run is kept with `run`."""

    def __init__(self, config: MlflowConfig, run: TrackedRun) -> None:
        self._config, self._run = config, run
        self._client: MlflowClient | None = None
        self._id = ""
        self._waiting: list[tuple[str, float, int, int]] = []  # name, value, milliseconds since 1970, round

    def begin(self, parameters: Mapping[str, Parameter]) -> None:
        """Creates the run, or continues that of an earlier start, and sends parameters that are new."""
        client = self._connect()
        there = self._go_on(client) or self._create(client)
        said = {key: str(value)[:_LONGEST] for key, value in parameters.items()}
        new = [Param(key, value) for key, value in said.items() if key not in there]
        # MLflow never changes a parameter: what a resumed run has changed, such as its length, is a tag.
        tags = [RunTag(f"resumed.{key}", value) for key, value in said.items() if there.get(key, value) != value]
        for start in range(0, len(new), _PARAMETERS):
            client.log_batch(self._id, params=new[start : start + _PARAMETERS])
        if tags:
            client.log_batch(self._id, tags=tags)

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        """Buffers numbers, and sends them when there are many."""
        if len(self._waiting) >= _BATCH:
            self.flush()
        now = int(time.time() * 1000)
        self._waiting += [(name, value, now, round) for name, value in values.items()]

    def artefact(self, path: Path) -> None:
        """Sends a file; a model's goes below `model`, and is registered if a name is given."""
        client = self._connect()
        model = path.suffix == ".safetensors"
        client.log_artifact(self._id, str(path), "model" if model else None)
        if model and self._config.register_as:
            self._register(client)

    def flush(self) -> None:
        while self._waiting:
            part = self._waiting[:_BATCH]
            self._connect().log_batch(self._id, metrics=[Metric(*one) for one in part])
            del self._waiting[: len(part)]

    def end(self, status: Status) -> None:
        self._connect().set_terminated(self._id, _STATUS[status])

    def _connect(self) -> MlflowClient:
        if self._client is None:
            uri = self._config.resolve(self._run.base, self._run.folder)
            if uri.startswith("file:"):
                os.environ.setdefault(FOLDERS, "true")
            if uri.startswith(SQLITE):
                make_database(Path(uri.removeprefix(SQLITE)))
            self._client = MlflowClient(uri, registry_uri=uri)
        return self._client

    def _go_on(self, client: MlflowClient) -> dict[str, str]:
        """Resumes the run of an earlier start; returns its parameters, empty if there is none."""
        known = self._id or self._run.kept.get("run", "")
        if not known:
            return {}
        try:
            found = client.get_run(known)
            client.update_run(known, status="RUNNING")
        except MlflowException as failed:
            if failed.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                self._id = ""
                return {}  # it was deleted
            raise
        self._id = known
        return dict(found.data.params)

    def _create(self, client: MlflowClient) -> dict[str, str]:
        if not self._id:
            tags = {"colonnade.federation": self._run.federation, "colonnade.member": self._run.member}
            made = client.create_run(self._experiment(client), tags=tags, run_name=self._run.name)
            self._id = made.info.run_id
            self._run.keep({"run": self._id})
        return {}

    def _experiment(self, client: MlflowClient) -> str:
        name = self._config.experiment or self._run.federation
        if (found := client.get_experiment_by_name(name)) is not None:
            if found.lifecycle_stage != "active":
                raise EnvironmentFault(
                    f"the MLflow experiment {name!r} was deleted", hint="restore it, or name another"
                )
            return str(found.experiment_id)
        uri = self._config.resolve(self._run.base, self._run.folder)
        beside = None  # a server has a place for files; a SQLite file's are beside it, not in the current folder
        if uri.startswith(SQLITE):
            file = Path(uri.removeprefix(SQLITE))
            beside = (file.parent / f"{file.stem}-artefacts").as_uri()
        return str(client.create_experiment(name, artifact_location=beside))

    def _register(self, client: MlflowClient) -> None:
        name = self._config.register_as
        try:
            client.create_registered_model(name)
        except MlflowException as failed:
            if failed.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        where = f"{client.get_run(self._id).info.artifact_uri}/model"
        client.create_model_version(name, where, self._id)


def make_database(file: Path) -> None:
    """Creates a database with MLflow's tables if there is none.

    MLflow creates tables one by one, and cannot continue from some of them. Members on one machine start together, and
    any may be killed: so one at a time creates the database, under another name.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    with os.fdopen(open_own(file.with_name(f"{file.name}.lock"), os.O_WRONLY | os.O_CREAT), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return
        for left in partial.parent.glob(f"{partial.name}*"):
            left.unlink()
        MlflowClient(f"{SQLITE}{partial}").get_experiment_by_name("any")
        partial.replace(file)
