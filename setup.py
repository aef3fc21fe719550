"""Which folders of the tree are which packages: all are installed under one name, `colonnade`.

In the tree the same folders stand under `colonnade/` as links, for everything that reads sources by their paths.
"""

from setuptools import find_namespace_packages, setup

ROOMS = (
    "cli",
    "client",
    "common",
    "experiments",
    "launcher",
    "reports",
    "search",
    "server",
    "simulation",
    "testing",
)
FOUND = find_namespace_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])

setup(
    packages=["colonnade", *(f"colonnade.{name}" for name in FOUND)],
    package_dir={f"colonnade.{room}": room for room in ROOMS},
)
