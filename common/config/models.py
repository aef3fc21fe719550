"""Models of a configuration: `model` (a tower: a party's values -> its embedding) and `head` (embeddings -> scores).

    model: {name: mlp, hidden: 120, embedding: 60}
    model: {file: "./tower.py:Tower", depth: 3}      user code
    model: {name: NAME, depth: 3}                    code of another package
    model: {name: timm/vit_small_patch16_224, weights: vit.safetensors}     a column of images (docs/towers.md)
    model: {name: transformers/bert, weights: ./bert}                       a column of texts

They are built in common/models/build.py. A user's file is code and runs with all rights of the process, so it is
accepted only from the local part of a configuration, never from the shared part or a message. An entry of
`colonnade.models` names a class, or a function that returns a module.
"""

from __future__ import annotations

import ast
import datetime
import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    create_model,
    model_validator,
)

from colonnade.common.config.data.columns import Type
from colonnade.common.config.run_options import Precision
from colonnade.common.errors import ConfigError, nearest
from colonnade.common.run.plug_ins import Extended, PlugIns
from colonnade.common.section import Section, kind

LIBRARIES = ("timm", "transformers")


class PretrainedConfig(Section):
    """Frozen, its embeddings of a cell are columns of numbers, which enter a linear layer; with `tune` it is trained
    too.
    """

    reads: ClassVar[Type]

    name: str
    architecture: str = Field(
        pattern=r"^[\w.-]+$", description="what the library calls it; or behind the name, as in `name: timm/NAME`"
    )
    weights: str = Field(min_length=1, description="its weights on this machine; nothing is ever downloaded")
    tune: bool = Field(default=False, description="train it with the layer behind it; false: it is frozen")
    precision: Precision = None
    embedding: PositiveInt = Field(
        default=60, description="width of the embedding; left out, the protocol's `embedding` if it has one"
    )
    cache: bool = Field(
        default=True, description="keep a frozen tower's embeddings in `.embeddings` beside the configuration"
    )


class TimmConfig(PretrainedConfig):
    """An image tower of timm, `name: timm/NAME`; `weights` is a safetensors file."""

    reads: ClassVar[Type] = "image"

    name: Literal["timm"] = kind("timm", "the model")


class TransformersConfig(PretrainedConfig):
    """A text tower of transformers, `name: transformers/TYPE`; `weights` is a folder with its model and tokenizer."""

    reads: ClassVar[Type] = "text"

    name: Literal["transformers"] = kind("transformers", "the model")
    length: PositiveInt = Field(default=128, description="tokens of a text that are read; what follows is left out")
    pool: Literal["mean", "first"] = Field(
        default="mean", description="the embedding of a text: the mean over its tokens, or that of the first"
    )


Embedding = Annotated[
    PositiveInt, Field(description="width of the embedding; left out, the protocol's `embedding` if it has one")
]

MODELS = PlugIns(
    "models",
    ("mlp", "cnn", "lenet", "resnet18", "resnet50", "linear", "polynomial", "normed", "product", "own", *LIBRARIES),
)
"""Models of installed packages; names of built-in towers and heads are reserved."""


class MlpConfig(Section):
    """Two linear layers with a ReLU after each, or after the first alone; the authors use widths of 120 and 60."""

    name: Literal["mlp"] = kind("mlp", "the model")
    hidden: PositiveInt = Field(default=120, description="width of the first layer")
    embedding: Embedding = 60
    signed: bool = Field(default=False, description="embeddings may be negative: no ReLU after the second layer")
    precision: Precision = None


class LinearConfig(Section):
    """One linear layer, with a ReLU unless `activation` is `none`. The paper's width is 64."""

    name: Literal["linear"] = kind("linear", "the model")
    embedding: Embedding = 60
    activation: Literal["relu", "none"] = Field(default="relu", description="function after the layer")
    precision: Precision = None


class PolynomialConfig(Section):
    """`layers` is D, the highest power; one layer is linear. The paper has 1 or 2, and gives no width."""

    name: Literal["polynomial"] = kind("polynomial", "the model")
    layers: PositiveInt = Field(default=2, description="D, the highest power of a value")
    embedding: Embedding = 60

    clip: float = Field(
        default=0, ge=0, allow_inf_nan=False, description="bound of the values that powers are taken of; 0: none"
    )


class CnnConfig(Section):
    """Two 3 x 3 convolutions of `channels` maps, each halving height and width, and a linear layer unless `flat`.

    The maximum is taken before ReLU: the same result for a quarter of the work.
    """

    name: Literal["cnn"] = kind("cnn", "the model")
    channels: tuple[PositiveInt, PositiveInt] = Field(default=(16, 32), description="maps of the two convolutions")
    embedding: Embedding = 60
    flat: bool = Field(default=False, description="the features themselves are the embedding: no linear layer")
    precision: Precision = None


class LenetConfig(Section):
    """LeNet for images of any height and width; S4 averages, or repeats, its input to 5 x 5."""

    name: Literal["lenet"] = kind("lenet", "the model")
    embedding: Embedding = 60
    precision: Precision = None


class ResnetConfig(Section):
    """A residual network with 18 or 50 layers, for images of any height and width."""

    name: Literal["resnet18", "resnet50"] = kind("resnet18", "the model")
    embedding: Embedding = 60
    precision: Precision = None


TowerConfig = MlpConfig | LinearConfig | PolynomialConfig | CnnConfig | LenetConfig | ResnetConfig


class LinearHeadConfig(Section):
    """One linear layer, without a bias like the heads of VIMADMM (its W_k)."""

    name: Literal["linear"] = kind("linear", "the head")
    bias: bool = Field(default=False, description="adds a bias to every score")

    def size(self, inputs: int, classes: int) -> int:
        return (inputs + self.bias) * classes


class ProductHeadConfig(Section):
    """h W_k: the linear head of one party in VIMADMM."""

    name: Literal["linear"] = kind("linear", "the head")

    def size(self, inputs: int, classes: int) -> int:
        return inputs * classes


class MlpHeadConfig(Section):
    """`layers` linear layers with ReLU and dropout between: the non-linear head of VIMADMM, Section V-B2.

    The paper has two layers (three for NUS-WIDE) and a dropout of .25; it gives no width.
    """

    name: Literal["mlp"] = kind("mlp", "the head")
    hidden: PositiveInt = Field(default=128, description="width of the hidden layers")
    layers: Annotated[int, Field(ge=2)] = Field(default=2, description="linear layers, the last one included")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.25, description="share of hidden values that a training step leaves out"
    )

    def size(self, inputs: int, classes: int) -> int:
        return sum((width + 1) * after for width, after in pairwise([*self.widths(inputs), classes]))

    def widths(self, inputs: int) -> list[int]:
        return [inputs] + [self.hidden] * (self.layers - 1)


class NormedHeadConfig(Section):
    """Linear, batch norm, linear, ReLU, batch norm, weight-normed linear: FedVS, Appendix C, for credit cards.

    The paper ends in a sigmoid of one score; two scores with a softmax are equivalent. It gives no width.
    """

    name: Literal["normed"] = kind("normed", "the head")
    hidden: PositiveInt = Field(default=128, description="width of the hidden layers")


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


PartyHeadConfig = Annotated[
    Annotated[ProductHeadConfig | MlpHeadConfig, Field(discriminator="name")], BeforeValidator(_named)
]
"""Agreed head of each party in VIMADMM."""

JointHeadConfig = Annotated[
    Annotated[LinearHeadConfig | MlpHeadConfig, Field(discriminator="name")], BeforeValidator(_named)
]
"""Agreed head over all embeddings in C-VFL."""


class UserModule(BaseModel):
    """Base of configs whose module is code from outside Colonnade."""

    @model_validator(mode="after")
    def _arguments_are_plain(self) -> Self:
        """Refuses values that would change once the configuration is written and read again, as `up` does."""
        for key, value in (self.model_extra or {}).items():
            if said := _not_plain(value, key):
                raise ValueError(
                    f"{said}: an argument is text, a finite number, true, false, null, or lists and sections"
                )
        return self


def precision_of(model: object) -> str:
    """The arithmetic of a model's layers, unless a user's model has its own argument of this name."""
    return "float32" if isinstance(model, UserModule) else getattr(model, "precision", None) or "float32"


def _not_plain(value: object, where: str) -> str:
    """Describes the part of an argument that a configuration file cannot hold; "" if there is none."""
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return ""
    if isinstance(value, list):
        return next(filter(None, (_not_plain(one, f"{where}[{at}]") for at, one in enumerate(value))), "")
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            return f"{where} has the key {wrong[0]!r}, which is no text (put it in quotes)"
        return next(filter(None, (_not_plain(one, f"{where}.{key}") for key, one in value.items())), "")
    quotes = " (put it in quotes)" if isinstance(value, datetime.date) else ""
    return f"{where} = {str(value)[:40]} is {type(value).__name__}{quotes}"


class OwnConfig(UserModule):
    """A class, or a function that returns a module, and its arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)

    file: Annotated[
        str,
        Field(
            pattern=r"^.+\.py:\w+$",
            examples=["./FILE.py:NAME"],
            description="a class or function of yours, ./FILE.py:NAME; other keys are its arguments",
        ),
    ]

    def find(self, base: Path) -> None:
        """Looks for NAME in the file without running it. Raises ConfigError."""
        path, name = self.file.rsplit(":", 1)
        file = base / Path(path).expanduser()
        refuse_missing(file)
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
            raise ConfigError(f"{file} is not Python: {' '.join(str(wrong).split())}", hint="mend the file") from None
        if name not in (defined := set(_defined(tree.body))):
            raise no_such(str(file), name, defined)


def refuse_missing(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="the path is relative to the configuration's folder")


def no_such(file: str, name: str, there: Iterable[str]) -> ConfigError:
    """The error about a file without the class or function that a configuration names."""
    said = f"{file} has no class or function {name!r}{nearest(name, there)}"
    return ConfigError(said, hint="name it after the colon")


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that statements define in their module, also under conditions."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name.split(".")[0] for each in names)
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                for part in ("body", "orelse", "finalbody"):
                    yield from _defined(getattr(statement, part, ()))
                for handler in getattr(statement, "handlers", ()):
                    yield from _defined(handler.body)


class OutsideModel(UserModule):
    """A model of another package, and its arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(description="name of the package's model; other keys are its arguments: docs/plug_ins.md")


def is_outside(name: object) -> bool:
    """True if a package registers a model of this name. Raises ConfigError if it is registered twice."""
    if not isinstance(name, str):
        return False
    MODELS.refuse_clash(name)
    return name in MODELS.entries


class ModelOutside(Extended):
    @property
    def plug_ins(self) -> PlugIns:
        return MODELS

    def options(self) -> list[type[BaseModel]]:
        fields: list[dict[str, Any]] = [{"name": (Literal[name], ...)} for name in MODELS.entries]
        return [create_model("_Outside", **field) for field in fields]


def _expand(value: object) -> object:
    """Expands the short form, `mlp` or `./tower.py:Tower`, a file in place of a name, and `NAME/ARCHITECTURE`, as in
    `timm/NAME`.
    """
    if isinstance(value, dict) and "file" not in value and _is_file(value.get("name")):
        return {"file" if key == "name" else key: below for key, below in value.items()}
    if isinstance(value, dict) and "architecture" not in value and _is_pretrained(value.get("name")):
        library, _, architecture = str(value["name"]).partition("/")
        return {**value, "name": library, "architecture": architecture}
    if _is_pretrained(value):
        return _expand({"name": value})
    if not isinstance(value, str):
        return value
    return {"file" if _is_file(value) else "name": value}


def _is_file(value: object) -> bool:
    return isinstance(value, str) and (value.startswith("./") or ":" in value)


def _is_pretrained(value: object) -> bool:
    return isinstance(value, str) and value.partition("/")[0] in LIBRARIES and "/" in value


def _kind(value: object) -> str | None:
    if isinstance(value, UserModule):
        return "own" if isinstance(value, OwnConfig) else "outside"
    if not isinstance(value, dict):
        return getattr(value, "name", None)
    if "file" in value:
        return "own"
    return "outside" if is_outside(value.get("name")) else value.get("name")


_Own = Annotated[OwnConfig, Tag("own")] | Annotated[OutsideModel, Tag("outside")]

ModelConfig = Annotated[
    Annotated[
        Annotated[MlpConfig, Tag("mlp")]
        | Annotated[CnnConfig, Tag("cnn")]
        | Annotated[LenetConfig, Tag("lenet")]
        | Annotated[ResnetConfig, Tag("resnet18")]
        | Annotated[ResnetConfig, Tag("resnet50")]
        | Annotated[LinearConfig, Tag("linear")]
        | Annotated[PolynomialConfig, Tag("polynomial")]
        | Annotated[TimmConfig, Tag("timm")]
        | Annotated[TransformersConfig, Tag("transformers")]
        | _Own,
        Discriminator(_kind),
    ],
    BeforeValidator(_expand),
    ModelOutside(),
]
HeadConfig = Annotated[
    Annotated[
        Annotated[LinearHeadConfig, Tag("linear")]
        | Annotated[MlpHeadConfig, Tag("mlp")]
        | Annotated[NormedHeadConfig, Tag("normed")]
        | _Own,
        Discriminator(_kind),
    ],
    BeforeValidator(_expand),
    ModelOutside(),
]


def user_parts(**sections: object) -> list[str]:
    """The user-defined models of a member, described; arguments are `model=`, `head=`."""
    parts = {key: one for key, one in sections.items() if isinstance(one, UserModule)}
    return [f"its {key} {getattr(one, 'file', None) or getattr(one, 'name', '')}" for key, one in parts.items()]
