"""Makes a release in a folder: sdist, wheel, a list of what runs with them (SBOM), checksums. `make release` runs it.

    python deploy/release.py [FOLDER]       default: dist; ALLOW_DEV=1 permits a .dev version and uncommitted changes

Nothing is written if a check before the build fails; checks after it compare the files with what they must contain.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
DISTRIBUTIONS = ("colonnade", "colonnade_lab")  # as files are named


class ReleaseRefusedError(Exception):
    """A release that must not be made; the message says why and what to do."""


def main(folder: Path) -> None:
    """Builds, lists, sums up and checks a release. Raises ReleaseRefusedError."""
    version = project_version()
    if os.environ.get("ALLOW_DEV") != "1":
        refuse_unfinished(ROOT, version)
    for old in folder.glob("colonnade[-_]*"):
        old.unlink()
    build(folder)
    bom = folder / f"colonnade-{version}.cdx.json"
    bom.write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    write_sums(folder, version)
    check(folder, version)
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        print(line)
    print(f"{folder}: release {version}, checked; `sha256sum -c {SUMS}` checks it again")


def project_version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def refuse_unfinished(root: Path, version: str) -> None:
    """Raises ReleaseRefusedError for a version under development, and for a tree with uncommitted changes."""
    if Version(version).is_devrelease:
        raise ReleaseRefusedError(
            f"{version} is a version under development: set the release's (CONTRIBUTING.md, A release), or ALLOW_DEV=1"
        )
    changed = _output("git", "-C", str(root), "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseRefusedError(f"uncommitted changes, for example {changed[0][3:]}: commit them, or ALLOW_DEV=1")


def build(folder: Path) -> None:
    """Writes both distributions; times in them are those of the commit, so that a second build gives the same bytes."""
    made = _output("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()
    for source in (ROOT, ROOT / "lab"):
        command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
        done = subprocess.run(  # noqa: S603
            command, env={**os.environ, "SOURCE_DATE_EPOCH": made}, check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise ReleaseRefusedError(f"the build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def bill_of_materials() -> dict[str, Any]:
    """CycloneDX of the packages that `pip install colonnade` brings, without extras, at the tested versions.

    Raises:
        ReleaseRefusedError: a package of this environment has another version than constraints.txt.
    """
    made = _output(
        *(sys.executable, "-P", "-m", "cyclonedx_py", "environment", "--no-validate", "--output-reproducible"),
        *("--pyproject", str(ROOT / "pyproject.toml")),
    )
    bom: dict[str, Any] = json.loads(made)
    wanted = runtime_packages()
    parts = [part for part in bom["components"] if canonicalize_name(part["name"]) in wanted]
    refuse_untested(parts)
    refs = {part["bom-ref"]: canonicalize_name(part["name"]) for part in parts}
    main = bom["metadata"]["component"]["bom-ref"]
    edges = [{"ref": main, "dependsOn": _refs_of(refs, direct("colonnade"))}]
    edges += [{"ref": ref, "dependsOn": _refs_of(refs, direct(name))} for ref, name in refs.items()]
    return {
        **bom,
        "components": parts,
        "dependencies": [edge if edge["dependsOn"] else {"ref": edge["ref"]} for edge in edges],
    }


def runtime_packages() -> set[str]:
    """Names of all packages that Colonnade needs here, directly or through others, itself left out."""
    found: set[str] = set()
    waiting = direct("colonnade")
    while waiting:
        found |= waiting
        waiting = set().union(*map(direct, waiting)) - found
    return found


def direct(name: str) -> set[str]:
    """Names of the packages that a package requires on this system, without extras."""
    needed = map(Requirement, distribution(name).requires or ())
    return {canonicalize_name(one.name) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})}


def write_sums(folder: Path, version: str) -> None:
    """SHA256SUMS, as `sha256sum -c` reads it."""
    lines = [f"{_sum(path)}  {path.name}\n" for path in released(folder, version)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check(folder: Path, version: str) -> None:
    """Reads a release again. Raises ReleaseRefusedError for a file that is missing, changed, or of another version."""
    named = dict(line.split("  ")[::-1] for line in (folder / SUMS).read_text(encoding="utf-8").splitlines())
    expected = [path.name for path in released(folder, version)]
    if sorted(named) != sorted(expected):
        raise ReleaseRefusedError(f"{SUMS} names {', '.join(sorted(named))}, and a release is {', '.join(expected)}")
    for path in released(folder, version):
        if not path.is_file() or _sum(path) != named[path.name]:
            raise ReleaseRefusedError(f"{path} is missing, or not the file that {SUMS} names")
    *packages, bom = released(folder, version)
    for path in packages:
        name = path.name.partition("-")[0]
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                content = archive.read(f"{name}-{version}.dist-info/METADATA")
        else:
            with tarfile.open(path) as archive:
                member = archive.extractfile(f"{name}-{version}/PKG-INFO")
                content = member.read() if member is not None else b""
        _check_metadata(path, content, name.replace("_", "-"), version)
    _check_bom(bom, version)


def released(folder: Path, version: str) -> list[Path]:
    """The files of a release, SHA256SUMS left out."""
    packages = [f"{name}-{version}{end}" for name in DISTRIBUTIONS for end in ("-py3-none-any.whl", ".tar.gz")]
    return [folder / name for name in (*packages, f"colonnade-{version}.cdx.json")]


def _check_metadata(path: Path, content: bytes, name: str, version: str) -> None:
    found = message_from_bytes(content)
    if (found["Name"], found["Version"]) != (name, version):
        raise ReleaseRefusedError(f"{path} says it is {found['Name']} {found['Version']}, not {name} {version}")
    if not str(found.get_payload()).strip() or found["Description-Content-Type"] != "text/markdown":
        raise ReleaseRefusedError(f"{path} has no description: README.md is missing")


def _check_bom(path: Path, version: str) -> None:
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    text = path.read_text(encoding="utf-8")
    bom = json.loads(text)
    if bom["metadata"]["component"]["version"] != version:
        raise ReleaseRefusedError(f"{path} is of another version than {version}")
    missing = runtime_packages() - {canonicalize_name(part["name"]) for part in bom["components"]}
    if missing:
        raise ReleaseRefusedError(f"{path} lacks {', '.join(sorted(missing))}")
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ReleaseRefusedError(f"{path} is not valid CycloneDX 1.6: {wrong}")


def refuse_untested(parts: Iterable[dict[str, Any]]) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M))
    tested = {canonicalize_name(name): Version(version).public for name, version in pins.items()}
    for part in parts:
        pin = tested.get(canonicalize_name(part["name"]))
        if Version(part["version"]).public != pin:
            raise ReleaseRefusedError(
                f"{part['name']} is {part['version']} here, and constraints.txt has {pin or 'no version of it'}: "
                "install with -c constraints.txt, or pin it there"
            )


def _refs_of(refs: dict[str, str], names: set[str]) -> list[str]:
    return sorted(ref for ref, name in refs.items() if name in names)


def _sum(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _output(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise ReleaseRefusedError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit("error: git is needed, to tell whether the tree is committed")
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    except ReleaseRefusedError as refused:
        sys.exit(f"error: {refused}")
