"""MLflow, through its client: no global state of MLflow is used, and no service of it is started.

MLflow reads its credentials from its own environment variables. Importing it takes seconds, so this happens before a
run begins.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from colonnade.common.errors import ConfigError, EnvironmentFault
from colonnade.common.run.own_files import open_own
from colonnade.common.tracking.tracker import Parameter, Status, TrackedRun, TrackerConfig

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXTRA = "'colonnade[mlflow]'"

_URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_SCHEMES = ("http", "https", "file", "sqlite")
_DATABASE = {"sqlalchemy": EXTRA, "alembic": EXTRA}

# Of this process alone, and only where the user has not set them. Without a retry of its own a call fails within
# seconds: the thread of common/tracking/delivery.py makes it again. A jitter would draw from Python's generator.
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
}
_LATER = {
    "database": (
        "alembic.command",
        "mlflow.store.db.utils",
        "mlflow.store.tracking.sqlalchemy_store",
        "mlflow.store.tracking.sqlalchemy_workspace_store",
        "mlflow.store.model_registry.sqlalchemy_store",
        "mlflow.store.model_registry.sqlalchemy_workspace_store",
        "mlflow.store.artifact.local_artifact_repo",
    ),
    "server": ("mlflow.store.tracking.rest_store", "mlflow.store.artifact.mlflow_artifacts_repo"),
}
_FOLDERS = "MLFLOW_ALLOW_FILE_STORE"

_BATCH = 500  # metrics of a request; MLflow takes 1000
_PARAMETERS = 100  # of a request
_LONGEST = 500  # characters of a parameter
_STATUS: Mapping[Status, str] = {"completed": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowConfig(TrackerConfig):
    """`mlflow`: a run with parameters, metrics by round, the summary and, on request, the model."""

    packages: ClassVar[Mapping[str, str]] = {"mlflow": EXTRA}

    name: Literal["mlflow"] = "mlflow"
    uri: str = Field(
        default="", description="http(s)://HOST:PORT, or a path: a SQLite file, relative to the configuration's folder"
    )
    experiment: str = Field(default="", description="left out, the federation's id")
    register_as: str = Field(default="", alias="register", description="name in the model registry; needs model: true")

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @field_validator("uri")
    @classmethod
    def _without_password(cls, value: str) -> str:
        refuse_password(value, "uri")
        return value

    @field_validator("register_as")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if any(sign in value for sign in "/:"):
            raise ValueError("a model's name contains neither / nor :")
        return value

    @model_validator(mode="after")
    def _registers_a_model(self) -> MlflowConfig:
        if self.register_as and not self.model:
            raise ValueError("register without model: true; there is nothing to register")
        return self

    def prepare(self) -> None:
        """Imports MLflow with all that the client loads later, by the kind of address."""
        quieten()
        for module in ("mlflow", "mlflow.entities", "mlflow.exceptions"):
            import_module(module)
        for module in _LATER["database" if self._local else "server"]:
            with suppress(ModuleNotFoundError):  # another version of MLflow has it elsewhere
                import_module(module)

    def open(self, run: TrackedRun) -> MlflowTracker:
        """Makes the client. The first call that reaches the server is `begin`."""
        return MlflowTracker(self, run)

    def needed(self) -> Mapping[str, str]:
        """A SQLite file needs SQLAlchemy and Alembic too. Raises ConfigError: MLFLOW_TRACKING_URI has a password."""
        refuse_password(self._address(), _URI)
        return {**self.packages, **(_DATABASE if self._local else {})}

    def identity(self) -> str:
        """Name, server and experiment; hashed, since it is written to a file."""
        return f"mlflow {hashlib.sha256(f'{self.uri} {self.experiment}'.encode()).hexdigest()[:16]}"

    def resolve(self, base: Path, folder: Path) -> str:
        """The URI for MLflow's client; a path becomes one of SQLite, and without a URI a file of the run's folder."""
        given = self._address()
        if not given:
            return f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        scheme = urlsplit(given).scheme
        if scheme == "sqlite":
            return f"sqlite:///{(base / given.removeprefix('sqlite:///')).resolve()}"
        return given if scheme in _SCHEMES else f"sqlite:///{(base / given).resolve()}"

    @property
    def _local(self) -> bool:
        return not self._address().startswith(("http:", "https:", "file:"))

    def _address(self) -> str:
        return self.uri or os.environ.get(_URI, "")


def refuse_password(uri: str, place: str) -> None:
    """Refuses a URI with credentials, or of an unknown scheme, without quoting it. Raises ConfigError."""
    parts = urlsplit(uri)
    if "@" in unquote(parts.netloc) or re.search(r"(?i)(password|token|secret|key)=", unquote(parts.query)):
        raise ConfigError(
            f"{place} contains a user name or a password",
            hint="leave it out; MLflow reads MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or _TOKEN",
        )
    if "://" in uri and parts.scheme not in _SCHEMES:
        raise ConfigError(f"{place} begins with {parts.scheme!r}://", hint="expected http, https, sqlite or a path")


class MlflowTracker:
    """One start of a run at MLflow; the id of MLflow's run is kept with `run`."""

    def __init__(self, config: MlflowConfig, run: TrackedRun) -> None:
        self._config, self._run = config, run
        self._client: MlflowClient | None = None
        self._id = ""
        self._waiting: list[tuple[str, float, int, int]] = []  # name, value, milliseconds since 1970, round

    def begin(self, parameters: Mapping[str, Parameter]) -> None:
        """Creates the run, or continues that of an earlier start, and sends parameters that are new."""
        from mlflow.entities import Param, RunTag  # noqa: PLC0415

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
        from mlflow.entities import Metric  # noqa: PLC0415

        while self._waiting:
            part = self._waiting[:_BATCH]
            self._connect().log_batch(self._id, metrics=[Metric(*one) for one in part])
            del self._waiting[: len(part)]

    def end(self, status: Status) -> None:
        self._connect().set_terminated(self._id, _STATUS[status])

    def _connect(self) -> MlflowClient:
        if self._client is None:
            quieten()
            from mlflow import MlflowClient  # noqa: PLC0415

            uri = self._config.resolve(self._run.base, self._run.folder)
            if uri.startswith("file:"):
                os.environ.setdefault(_FOLDERS, "true")
            if uri.startswith(_SQLITE):
                make_database(Path(uri.removeprefix(_SQLITE)))
            self._client = MlflowClient(uri, registry_uri=uri)
        return self._client

    def _go_on(self, client: MlflowClient) -> dict[str, str]:
        """Opens the run of an earlier start; returns its parameters, empty if there is none."""
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

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
            made = client.create_run(self._experiment(client), tags=self._tags(), run_name=self._run.name)
            self._id = made.info.run_id
            self._run.keep({"run": self._id})
        return {}

    def _tags(self) -> dict[str, str]:
        return {"colonnade.federation": self._run.federation, "colonnade.member": self._run.member}

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
        if uri.startswith(_SQLITE):
            file = Path(uri.removeprefix(_SQLITE))
            beside = (file.parent / f"{file.stem}-artefacts").as_uri()
        return str(client.create_experiment(name, artifact_location=beside))

    def _register(self, client: MlflowClient) -> None:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        name = self._config.register_as
        try:
            client.create_registered_model(name)
        except MlflowException as failed:
            if failed.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        where = f"{client.get_run(self._id).info.artifact_uri}/model"
        client.create_model_version(name, where, self._id)


def make_database(file: Path) -> None:
    """Makes a database with MLflow's tables if there is none.

    MLflow makes tables one by one, and cannot continue from some of them. Members on one machine begin together, and
    any of them may be killed: so one at a time makes the database, under another name.
    """
    from mlflow import MlflowClient  # noqa: PLC0415

    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    with os.fdopen(open_own(file.with_name(f"{file.name}.lock"), os.O_WRONLY | os.O_CREAT), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return
        for left in partial.parent.glob(f"{partial.name}*"):
            left.unlink()
        MlflowClient(f"{_SQLITE}{partial}").get_experiment_by_name("any")
        partial.replace(file)


def quieten() -> None:
    """Switches off what MLflow would do by itself, unless the user has set its variables."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
