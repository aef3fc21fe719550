"""The section of the tracker `mlflow`.

MLflow reads its credentials from its own environment variables. Importing it takes seconds, so this happens before a
run begins.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from colonnade.common.errors import ConfigError
from colonnade.common.tracking.tracker import TrackedRun, Tracker, TrackerConfig

EXTRA = "'colonnade[mlflow]'"

_TRACKER = "colonnade.common.tracking.mlflow_tracker"

_URI = "MLFLOW_TRACKING_URI"
SQLITE = "sqlite:///"
_SCHEMES = ("http", "https", "file", "sqlite")
_DATABASE = {"sqlalchemy": EXTRA, "alembic": EXTRA}

# Of this process alone, and only where the user has not set them. Without a retry of its own a call fails within
# seconds: the thread of common/tracking/listener.py makes it again. A jitter would draw from Python's generator.
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
FOLDERS = "MLFLOW_ALLOW_FILE_STORE"


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

    def open(self, run: TrackedRun) -> Tracker:
        """Makes the client. The first call that reaches the server is `begin`."""
        quieten()
        tracker: Tracker = import_module(_TRACKER).MlflowTracker(self, run)  # it imports MLflow
        return tracker

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


def quieten() -> None:
    """Switches off MLflow's own background behaviour, unless the user has set its variables."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
