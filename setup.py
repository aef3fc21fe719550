"""server/, client/, common/ and experiments/ are installed as packages of `colonnade`.

In the tree they stand under `colonnade/` as links, for everything that reads sources by their paths.
"""

from setuptools import find_namespace_packages, setup

LINKED = ("client", "common", "experiments", "server")


def packages(names: list[str]) -> list[str]:
    """The named packages and all below them."""
    return find_namespace_packages(include=[pattern for name in names for pattern in (name, f"{name}.*")])


links = [f"colonnade.{name}" for name in LINKED]
own = [name for name in packages(["colonnade"]) if not name.startswith(tuple(links))]

setup(
    packages=own + [f"colonnade.{name}" for name in packages(list(LINKED))],
    package_dir=dict(zip(links, LINKED, strict=True)),
)
