"""Small sets bundled with scikit-learn, for a first run without a download.

They are read from scikit-learn's own files. Its loaders give the same (a test compares them), but importing them takes
1.3 s of processor time in every party.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import Shape
from colonnade.common.config.data.sources import BundledName
from colonnade.common.data.split import Part
from colonnade.common.errors import ConfigError, EnvironmentFault

_CELL = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
    "concave points", "symmetry", "fractal dimension",
)  # fmt: skip


@dataclass(frozen=True)
class _Layout:
    """A file of scikit-learn: a heading line unless `classes` are given, then values and the class.

    With `targets` the file holds values only, and `targets` names the file of the regression targets.
    """

    file: str
    shape: Shape
    names: Sequence[str]
    classes: tuple[str, ...] = ()
    targets: str = ""


_LAYOUTS: dict[BundledName, _Layout] = {
    "digits": _Layout(
        "digits.csv.gz",
        (8, 8),
        [f"pixel_{row}_{column}" for row in range(8) for column in range(8)],
        tuple("0123456789"),
    ),
    "breast_cancer": _Layout(
        "breast_cancer.csv",
        (30,),
        [f"mean {x}" for x in _CELL] + [f"{x} error" for x in _CELL] + [f"worst {x}" for x in _CELL],
    ),
    "wine": _Layout(
        "wine_data.csv",
        (13,),
        ["alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
         "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue",
         "od280/od315_of_diluted_wines", "proline"],
    ),
    "iris": _Layout(
        "iris.csv",
        (4,),
        ["sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"],
    ),
    "diabetes": _Layout(
        "diabetes_data_raw.csv.gz",
        (10,),
        ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"],
        targets="diabetes_target.csv.gz",
    ),
}  # fmt: skip


class Bundled:
    """One of the sets: digits is (1797, 8, 8) with values 0..16, the others are tables; diabetes has a regression
    target.
    """

    official_test = 0

    def __init__(self, name: BundledName) -> None:
        layout = self._layout = _LAYOUTS[name]
        self.path = _folder() / layout.file
        self.shape, self.names = layout.shape, tuple(layout.names)
        if not self.path.is_file():
            raise EnvironmentFault(
                f"scikit-learn has no {self.path.name} at {self.path.parent}",
                hint="install scikit-learn anew",
            )
        self.classes = () if layout.targets else layout.classes or self._heading()

    def ids(self) -> None:
        pass

    def read(self, part: Part) -> Tensor:
        return self.table()[:, part.positions].reshape(-1, *part.shape)

    def labels(self) -> Tensor:
        """(n,) int64. Raises ConfigError for a set that has none."""
        if not self.classes:
            raise ConfigError(
                f"{self.path.name} has numbers to be predicted and no classes",
                hint="set federation.task to regression",
            )
        return self.table()[:, math.prod(self.shape)].to(torch.int64)

    def targets(self) -> Tensor:
        """(n, 1) float64. Raises ConfigError for a set that has none."""
        if not self._layout.targets:
            raise ConfigError(
                f"{self.path.name} has classes and no numbers to be predicted",
                hint=f"take {', '.join(name for name, layout in _LAYOUTS.items() if layout.targets)}, or a csv file",
            )
        return torch.from_numpy(np.loadtxt(self.path.parent / self._layout.targets)).unsqueeze(1)

    def table(self) -> Tensor:
        heading = 0 if self.path.suffix == ".gz" else 1
        delimiter = None if self._layout.targets else ","
        return torch.from_numpy(np.loadtxt(self.path, delimiter=delimiter, skiprows=heading))

    def _heading(self) -> tuple[str, ...]:
        with self.path.open(encoding="utf-8") as lines:
            return tuple(lines.readline().strip().split(",")[2:])


def _folder() -> Path:
    spec = find_spec("sklearn")  # locates the package without importing it
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentFault("scikit-learn is not installed", hint="install colonnade's dependencies")
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data"
