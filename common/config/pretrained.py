"""Towers with weights made elsewhere: a `model` that reads a column of images or of texts (docs/towers.md).

model: {name: timm/vit_small_patch16_224, weights: vit.safetensors}     columns of `types: {photo: image}`
model: {name: transformers/bert, weights: ./bert}                       columns of `types: {notes: text}`
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from colonnade.common.config.data.columns import Type
from colonnade.common.section import Section, kind

LIBRARIES = ("timm", "transformers")


class PretrainedConfig(Section):
    """Frozen, its embeddings of a cell are columns of numbers, which a linear layer follows; with `tune` it is trained
    with that layer.
    """

    reads: ClassVar[Type]

    name: str
    architecture: str = Field(
        pattern=r"^[\w.-]+$", description="what the library calls it; or behind the name, as in `name: timm/NAME`"
    )
    weights: str = Field(min_length=1, description="its weights on this machine; nothing is ever downloaded")
    tune: bool = Field(default=False, description="train it with the layer behind it; false: it is frozen")
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
