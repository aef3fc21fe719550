"""Text towers of transformers. Slow to import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from transformers.utils import logging

from colonnade.common.config.models import TransformersConfig
from colonnade.common.data.pretrained.tower import WEIGHTS, PretrainedTower, Unreadable, digest_of
from colonnade.common.errors import ConfigError

_CONFIG, _TOKENS = "config.json", "tokenizer.json"
_UNUSED = "pooler."  # for the first token alone, and often not among the weights


def open_text(config: TransformersConfig, base: Path) -> PretrainedTower:
    """Raises ConfigError: the folder lacks a file, or holds another architecture."""
    folder = base / Path(config.weights).expanduser()
    weights = sorted(folder.glob(f"*{WEIGHTS}"))
    for path in (folder / _CONFIG, folder / _TOKENS, *([] if weights else [folder / f"model{WEIGHTS}"])):
        if not path.is_file():
            raise ConfigError(
                f"model.weights = {config.weights!r}: there is no file {path}",
                hint="name a folder with what `save_pretrained` of model and tokenizer wrote: "
                f"{_CONFIG}, model{WEIGHTS}, {_TOKENS}",
            )
    made = _loaded(folder, config.architecture)
    tokens = PreTrainedTokenizerFast(tokenizer_file=str(folder / _TOKENS))
    most = getattr(made.config, "max_position_embeddings", None)
    if most is not None and config.length > most:
        raise ConfigError(f"model.length = {config.length}: this {config.architecture} reads {most} tokens at most")

    def read(content: bytes) -> Tensor:
        numbers = tokens(content.decode(), truncation=True, max_length=config.length)["input_ids"]
        if not numbers:
            raise Unreadable("has no token")
        return torch.tensor(numbers, dtype=torch.float32)

    versions = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    digest = digest_of(
        [folder / _CONFIG, folder / _TOKENS, *weights], length=config.length, pool=config.pool, **versions
    )
    return PretrainedTower(_Texts(made, config.pool), made.config.hidden_size, (config.length,), read, digest)


def _loaded(folder: Path, architecture: str) -> Any:
    """The model in the folder. Runs no code from it, and downloads nothing."""
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        about = AutoConfig.from_pretrained(folder, **local)
        if about.model_type != architecture:
            raise ConfigError(
                f"model.architecture = {architecture!r}, and {folder / _CONFIG} is of model_type {about.model_type!r}",
                hint=f"write `name: transformers/{about.model_type}`",
            )
        if about.is_encoder_decoder:
            raise ConfigError(f"model.architecture = {architecture!r} writes texts", hint="take an encoder, as bert")
        with torch.random.fork_rng(devices=[]):
            made, found = AutoModel.from_pretrained(
                folder, config=about, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **local
            )
    except (ValueError, OSError, KeyError, AttributeError, RuntimeError, SafetensorError) as wrong:
        said = (str(wrong).strip() or type(wrong).__name__).splitlines()[0]
        raise ConfigError(
            f"{folder}: transformers makes no model of it: {said}", hint="fetch the folder again"
        ) from None
    finally:
        logging.set_verbosity(verbosity)
    if lacking := [name for name in sorted(found["missing_keys"]) if not name.startswith(_UNUSED)]:
        raise ConfigError(
            f"{folder}: the weights lack {', '.join(lacking[:4])}", hint=f"fetch those that belong to {_CONFIG}"
        )
    for name, parameter in made.named_parameters():
        parameter.requires_grad_(not name.startswith(_UNUSED))
    return made


class _Texts(nn.Module):
    """Token numbers, (rows, tokens), padded by -1."""

    def __init__(self, inner: Any, pool: str) -> None:
        super().__init__()
        self.inner, self._pool, self._pad = inner, pool, inner.config.pad_token_id or 0

    def forward(self, tokens: Tensor) -> Tensor:
        there = tokens >= 0
        numbers = torch.where(there, tokens, self._pad).long()
        hidden: Tensor = self.inner(input_ids=numbers, attention_mask=there.long()).last_hidden_state
        if self._pool == "first":
            return hidden[:, 0]
        weights = there.unsqueeze(2).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
