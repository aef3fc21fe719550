"""`make release`: what it refuses, the list of packages, checksums, and the labels of the image."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from colonnade.common.version import VERSION

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _load()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


def test_a_finished_version_of_a_committed_tree_alone_is_released(tree: Path) -> None:
    release.refuse_unfinished(tree, "0.2.0")
    with pytest.raises(release.ReleaseRefusedError, match=r"0\.2\.0\.dev0 is a version under development"):
        release.refuse_unfinished(tree, "0.2.0.dev0")
    (tree / "file").write_text("2")
    with pytest.raises(release.ReleaseRefusedError, match="uncommitted changes, for example file"):
        release.refuse_unfinished(tree, "0.2.0")
    subprocess.run(["git", "-C", str(tree), "checkout", "-q", "file"], check=True)
    (tree / "new").write_text("2")
    with pytest.raises(release.ReleaseRefusedError, match="for example new"):
        release.refuse_unfinished(tree, "0.2.0")


def test_the_command_refuses_before_it_touches_the_folder(tmp_path: Path) -> None:
    if not VERSION.partition(".dev")[1]:
        pytest.skip("a release")
    (tmp_path / "colonnade-0.1.0.tar.gz").write_text("older")
    done = subprocess.run(
        [sys.executable, ROOT / "deploy/release.py", tmp_path],
        check=False,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "ALLOW_DEV=1" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["colonnade-0.1.0.tar.gz"]


@pytest.fixture(scope="module")
def bom() -> dict:
    return release.bill_of_materials()


def test_the_list_has_what_runs_and_nothing_of_development(bom: dict) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    found = {canonicalize_name(part["name"]): part for part in bom["components"]}
    assert needed <= set(found) and {"sympy", "narwhals", "pydantic-core"} & set(found)
    assert not {"pytest", "ruff", "mypy", "optuna", "cyclonedx-bom", "pip", "colonnade"} & set(found)
    for part in found.values():
        assert part["version"] and part["purl"].startswith("pkg:pypi/")
    assert sum("licenses" in part for part in found.values()) > len(found) * 0.8
    assert bom["metadata"]["component"]["version"] == project["version"] == VERSION
    refs = {part["bom-ref"] for part in found.values()}
    main, *others = bom["dependencies"]
    assert len(main["dependsOn"]) == len(needed) and {edge["ref"] for edge in others} == refs
    assert all(set(edge.get("dependsOn", ())) <= refs for edge in others)


def test_a_package_of_an_untested_version_is_refused(bom: dict) -> None:
    part = dict(bom["components"][0], version="0.0.1")
    with pytest.raises(release.ReleaseRefusedError, match=r"is 0\.0\.1 here, and constraints\.txt has"):
        release.refuse_untested([part])
    with pytest.raises(release.ReleaseRefusedError, match="no version of it"):
        release.refuse_untested([{"name": "colonnade-unknown", "version": "1"}])


def metadata(version: str = VERSION, name: str = "colonnade") -> bytes:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join([*lines, "", "# Colonnade", ""]).encode()


@pytest.fixture
def made(tmp_path: Path, bom: dict) -> Path:
    """A release of packages that hold nothing but their metadata."""
    *packages, listed = release.released(tmp_path, VERSION)
    for name, wheel, sdist in zip(release.DISTRIBUTIONS, packages[::2], packages[1::2], strict=True):
        content = metadata(name=name.replace("_", "-"))
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{name}-{VERSION}.dist-info/METADATA", content)
        with tarfile.open(sdist, "w:gz") as archive:
            info = tarfile.TarInfo(f"{name}-{VERSION}/PKG-INFO")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    short = [{key: part[key] for key in ("type", "bom-ref", "name", "version", "purl")} for part in bom["components"]]
    listed.write_text(json.dumps({**bom, "components": short}))  # whole, its validation takes ten seconds
    release.write_sums(tmp_path, VERSION)
    return tmp_path


def test_checksums_are_those_of_sha256sum_and_the_check_passes(made: Path) -> None:
    subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=made, check=True, capture_output=True)
    assert len((made / "SHA256SUMS").read_text().splitlines()) == 5
    release.check(made, VERSION)


@pytest.mark.parametrize("place", range(5))
def test_a_changed_or_missing_file_is_found(made: Path, place: int) -> None:
    path = release.released(made, VERSION)[place]
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    with pytest.raises(release.ReleaseRefusedError, match="not the file that SHA256SUMS names"):
        release.check(made, VERSION)
    path.unlink()
    with pytest.raises(release.ReleaseRefusedError, match="is missing"):
        release.check(made, VERSION)


def test_a_list_that_lacks_a_package_or_is_malformed_is_found(made: Path, bom: dict) -> None:
    path = release.released(made, VERSION)[-1]
    for changed, message in (
        ({**bom, "components": [part for part in bom["components"] if part["name"] != "torch"]}, "lacks torch"),
        ({**bom, "components": [{"name": "nameless"}, *bom["components"]]}, "not valid CycloneDX"),
        (
            {**bom, "dependencies": [], "metadata": {"component": {"type": "library", "name": "x", "version": "9"}}},
            "another version",
        ),
    ):
        path.write_text(json.dumps(changed))
        release.write_sums(made, VERSION)
        with pytest.raises(release.ReleaseRefusedError, match=message):
            release.check(made, VERSION)


def test_a_wheel_of_another_version_is_found(made: Path) -> None:
    wheel = release.released(made, VERSION)[0]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"colonnade-{VERSION}.dist-info/METADATA", metadata("9.9"))
    release.write_sums(made, VERSION)
    with pytest.raises(release.ReleaseRefusedError, match=r"says it is colonnade 9\.9"):
        release.check(made, VERSION)


def test_the_image_says_what_it_is() -> None:
    final = (ROOT / "deploy/Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', final))
    assert labels["title"] == "Colonnade" and labels["description"]
    assert labels["version"] == "${VERSION}" and f"ARG VERSION={VERSION}\n" in final
    assert labels["revision"] == "${REVISION}" and "ARG REVISION=unknown\n" in final
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert labels["licenses"] == project["license"] and labels["vendor"] == project["authors"][0]["name"]
    assert set(labels) == {"title", "description", "version", "revision", "vendor", "licenses"}  # no address of sources


def test_make_has_the_target() -> None:
    said = subprocess.run(
        ["make", "-n", "release", "ALLOW_DEV=1"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "deploy/release.py dist" in said.stdout


def test_the_image_has_every_room() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {path.name for path in (ROOT / "colonnade").iterdir() if path.is_symlink()} <= sent
