"""A federation of docker-compose.yml under a name of its own, for tests: real containers on a real engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.errors import DockerException
from docker.models.containers import Container

ROOT = Path(__file__).parents[2]
IMAGE = os.environ.get("COLONNADE_IMAGE", "colonnade")
PARTIES = ("party1", "party2", "party3", "party4")
MEMBERS = ("server", *PARTIES)


@cache
def engine() -> docker.DockerClient | None:
    """The engine, if there is one with the image."""
    try:
        client = docker.from_env(timeout=60)
        client.images.get(IMAGE)
    except DockerException:
        return None
    return client


def composer() -> list[str]:
    """`docker compose` or `docker-compose`, as available."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]


class Project:
    """The services of the compose files, with a test's overlays.

    Args:
        folder: for the overlay and the report.
        files: overlays of the repository.
        over: an overlay of the test's own.
        environment: for the variables in the files.
    """

    def __init__(
        self, folder: Path, files: Sequence[str] = (), over: dict[str, Any] | None = None, **environment: str
    ) -> None:
        self.name, self.report = f"test-{folder.name.lower()[:40]}-{os.getpid()}", folder / "report"
        self.report.mkdir()
        over_file = folder / "over.yml"
        over_file.write_text(yaml.safe_dump(over or {"services": {"deal": {"tty": False}}}))
        paths = [ROOT / "docker-compose.yml", *(ROOT / "deploy" / file for file in files), over_file]
        self._argv = [*composer(), "-p", self.name, "--project-directory", str(ROOT)]
        self._argv += [word for path in paths for word in ("-f", str(path))]
        self._environment = {"COLONNADE_IMAGE": IMAGE, "COLONNADE_REPORT": str(self.report), **environment}

    def run(self, *words: str, seconds: float = 200) -> tuple[int, str]:
        """Runs a command of compose to its end; returns exit code and output."""
        done = subprocess.run(
            [*self._argv, *words],
            env=os.environ | self._environment, cwd=ROOT, timeout=seconds, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout

    def containers(self) -> dict[str, Container]:
        """Containers by service, ended ones too."""
        client = engine()
        assert client is not None
        found = client.containers.list(all=True, filters={"label": f"com.docker.compose.project={self.name}"})
        return {container.labels["com.docker.compose.service"]: container for container in found}

    def container(self, service: str) -> Container:
        """Current state of a service's container."""
        return self.containers()[service]

    def logs(self, service: str) -> str:
        """The log of its container, on one line."""
        return " ".join(self.container(service).logs().decode().split())

    def exit_codes(self) -> dict[str, int]:
        """Exit codes of all services, which have ended."""
        found = self.containers()
        assert all(container.status == "exited" for container in found.values())
        return {name: container.attrs["State"]["ExitCode"] for name, container in found.items()}

    def file(self, service: str, path: str) -> str:
        """The text of a file under a volume of a service; "" if there is none."""
        for mount in self.container(service).attrs["Mounts"]:
            if path.startswith(mount["Destination"] + "/"):
                there = Path(mount["Source"]) / path.removeprefix(mount["Destination"] + "/")
                return there.read_text() if there.exists() else ""
        raise KeyError(path)

    def events(self, kind: str, service: str = "server") -> list[dict[str, Any]]:
        """Events of a member's run so far."""
        lines = [json.loads(line) for line in self.file(service, "/runs/events.jsonl").splitlines() if line[-1:] == "}"]
        return [event for event in lines if event["kind"] == kind]

    def wait(self, until: Callable[[], object], what: str, seconds: float = 90) -> None:
        """Waits for a condition; raises AssertionError with the logs if it is not met."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                said = {name: container.logs(tail=5).decode() for name, container in self.containers().items()}
                raise AssertionError(f"{what}: not within {seconds} s; {said}")
            time.sleep(0.2)

    def rounds(self) -> int:
        """The newest round."""
        return max((event["round"] for event in self.events("round")), default=0)

    def wait_for_more(self, rounds: int = 3) -> None:
        """Waits for that many more rounds."""
        begun = len(self.events("round"))
        self.wait(lambda: len(self.events("round")) >= begun + rounds, f"{rounds} more rounds")

    def remove(self) -> None:
        """Removes everything of the project."""
        self.run("down", "--volumes", "--remove-orphans", "--timeout", "3")
        shutil.rmtree(self.report, ignore_errors=True)

    def left(self) -> list[str]:
        """Containers, volumes and networks that are still there."""
        client, label = engine(), {"label": f"com.docker.compose.project={self.name}"}
        assert client is not None
        found = [client.containers.list(all=True, filters=label), client.volumes.list(filters=label)]
        return [thing.name for things in [*found, client.networks.list(filters=label)] for thing in things]


@contextmanager
def project(folder: Path, *files: str, over: dict[str, Any] | None = None, **environment: str) -> Iterator[Project]:
    """A project that is always removed afterwards. See `Project`."""
    made = Project(folder, files, over, **environment)
    try:
        yield made
    finally:
        made.remove()


def dealing(*sets: str) -> dict[str, Any]:
    """An overlay that deals the configuration with other values."""
    words = ["deal", "--out", "/members", "--connect", "server:7400", "--owner", "10001"]
    return {"services": {"deal": {"command": [*words, *(word for value in sets for word in ("--set", value))]}}}
