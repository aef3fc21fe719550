"""Readers of what strangers send to a served model, and of texts that are shown."""

from __future__ import annotations

import json
from collections.abc import Callable

from google.protobuf.message import DecodeError

from colonnade.common.text import escaped, escaped_lines
from colonnade.common.wire._generated.serving_pb2 import PredictRequest
from colonnade.server.prediction.serving.openapi import LONGEST
from colonnade.server.prediction.serving.tokens import Tokens, Unknown
from colonnade.server.prediction.serving.web import Refused, read_body, read_ids
from tests.fuzz.engine import Broken, Case, Target
from tests.fuzz.mutations.plain import mutate_bytes
from tests.fuzz.mutations.protobuf import mutate_protobuf
from tests.fuzz.mutations.trees import mutate_json

_IDS = ["7", "12", "é", "a b"]


def _read_http() -> Callable[[str, bytes], object]:
    def read(_variant: str, data: bytes) -> object:
        return _checked(read_body(data.decode()))

    return read


def _read_grpc() -> Callable[[str, bytes], object]:
    return lambda _variant, data: _checked(read_ids({"ids": list(PredictRequest.FromString(data).ids)}))


def _checked(ids: list[str]) -> list[str]:
    if not ids or len(ids) > 4096 or not all(isinstance(id, str) and 0 < len(id) <= LONGEST for id in ids):
        raise Broken(f"{ids!r:.200}")
    return ids


def _read_tokens() -> Callable[[str, bytes], object]:
    tokens = Tokens({"default": "x" * 43}, 1e9)

    def read(_variant: str, data: bytes) -> object:
        shown = data.decode(errors="surrogateescape")
        name = tokens.admit(shown, 1)
        if shown.split()[-1] != "x" * 43:
            raise Broken(f"{shown!r} is let in as {name}")
        return name

    return read


def _read_texts() -> Callable[[str, bytes], object]:
    def read(variant: str, data: bytes) -> object:
        text = data.decode(errors="surrogatepass" if variant == "pairs" else "replace")
        plain = escaped(text)
        if not plain.isprintable() or len(plain) > 1000 or escaped(plain) != plain:
            raise Broken(f"{plain!r:.200}")
        if not all(line.isprintable() for line in escaped_lines(text).replace("\t", "\n").split("\n")):
            raise Broken("a character that a terminal obeys")
        return plain

    return read


_TEXTS = ("plain", "\x1b[2J\u202e\u200b", "a\r\nb\tc", "é" * 999 + "\x9b", "\U0001f600\u2028")
_BODIES = (json.dumps({"ids": _IDS}), json.dumps({"ids": [1, 2]}), json.dumps({"ids": ["x" * LONGEST]}))

TARGETS = (
    Target(
        "http", _read_http, lambda: [Case("", t.encode()) for t in _BODIES], (Refused, ValueError), mutate_json, 4000
    ),
    Target(
        "grpc",
        _read_grpc,
        lambda: [Case("", PredictRequest(ids=_IDS).SerializeToString())],
        (Refused, DecodeError),
        mutate_protobuf,
        4000,
    ),
    Target("bearers", _read_tokens, lambda: [Case("", b"Bearer " + b"x" * 43)], (Unknown,), mutate_bytes, 3000),
    Target(
        "texts",
        _read_texts,
        lambda: [Case(v, t.encode()) for t in _TEXTS for v in ("pairs", "")],
        (UnicodeDecodeError,),
        mutate_bytes,
        4000,
    ),
)
