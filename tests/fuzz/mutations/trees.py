"""Mutations that know JSON, YAML, JSON lines and safetensors: other values, and keys left out or given twice."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from random import Random
from typing import Any

import yaml

from colonnade.common.parsing.yaml_tree import parse_yaml
from tests.fuzz.mutations.plain import LONGEST, mutate_bytes

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e308, float("inf"),
    float("-inf"), float("nan"), "", "x", "0", "-1", "1e999", "nan", "NaN", "²", "٣", "\ud800",
    "\x1b[2J\u202e", "é" * 40,
    "/", "../x", "a.b", "0x10", "1_000", "2026-01-01", [], {}, [[]], [None], {"": None}, {"a": {"b": [1]}},
    [1, "x", None],
)  # fmt: skip
_TEXTS = (
    b"[" * 20_000, b'{"a":' * 20_000, b"1" * 5000, b"1e999", b"-Infinity", b"NaN", b"\xff", b"\xef\xbb\xbf",
    b"\0", b"null",
    b'"\\ud800"', b"[]", b"{}", b"", b'""', b"0", b"\n\n", b"\r", b"\xc2\x85", b"\x1c", b"{" * 20_000,
)  # fmt: skip
_YAML = (
    b"&a [*a]", b"&a {x: *a}", b"*a", b"!!python/object:os.system x", b"!!binary aGk=", b"!!set {a, b}",
    b"? [a, b]\n: c",
    b"<<: *a", b"<<: [1]", b"<<: 1", b"2026-01-01", b"2026-99-99", b"1:30:00", b"0o17", b"1_000", b".inf",
    b"-.inf", b".nan",
    b"~", b"|\n x", b"!!int x", b"!!float x", b"!!timestamp x", b"%YAML 9.9\n---\n", b"---\na: b\n---\n",
    b"\t", b": ", b"- ",
    b"{a: 1, a: 2}", b"[" * 3000, b"{a: " * 3000, b"- " * 3000, b"\xef\xbb\xbf", b"!!omap [a: 1]",
    b"!!pairs [a: 1]", b"y", b"no",
    b"&a [x,x,x,x,x,x,x,x,x]", b"!!map [a]", b"!!seq {a: b}", b"!x y", b"1e999", b"=", b"0b2", b"!!null x", b"!!bool x",
)  # fmt: skip


def mutate_json(rng: Random, data: bytes, other: bytes) -> bytes:
    """A change of a tree, of its text, or of both."""
    kind = rng.random()
    if kind < 0.25:
        return mutate_bytes(rng, data, other)
    if kind < 0.3:
        return _with_text(rng, data, _TEXTS)
    tree = _json(data)
    if tree is _NONE:
        return mutate_bytes(rng, data, other)
    changed = _changed(rng, copy.deepcopy(tree), _json(other))
    text = json.dumps(changed, ensure_ascii=rng.random() < 0.7).encode(errors="surrogatepass")
    return mutate_bytes(rng, text, other) if kind > 0.95 else text[:LONGEST]


def mutate_lines(rng: Random, data: bytes, other: bytes) -> bytes:
    """As `mutate_json` in one line, or a line out of its place."""
    lines, theirs = data.split(b"\n"), other.split(b"\n")
    at, taken = int(rng.random() * len(lines)), theirs[int(rng.random() * len(theirs))]
    kind = rng.random()
    if kind < 0.6:
        lines[at] = mutate_json(rng, lines[at], taken)
    elif kind < 0.7:
        lines.insert(at, taken)
    elif kind < 0.8:
        del lines[at]
    else:
        return mutate_bytes(rng, data, other)
    return b"\n".join(lines)[:LONGEST]


def mutate_yaml(rng: Random, data: bytes, other: bytes) -> bytes:
    """A change of the tree, of lines, or of bytes; words that YAML reads in a way of its own."""
    kind = rng.random()
    if kind < 0.15:
        return mutate_bytes(rng, data, other)
    if kind < 0.3:
        return _with_text(rng, data, _YAML)
    lines = data.split(b"\n")
    at = int(rng.random() * len(lines))
    if kind < 0.4:  # the value of a key
        key, colon, _ = lines[at].partition(b": ")
        lines[at] = key + (colon or b": ") + _YAML[int(rng.random() * len(_YAML))]
        return b"\n".join(lines)[:LONGEST]
    if kind < 0.55:
        theirs = other.split(b"\n")
        lines[at : at + int(rng.random() * 2)] = [theirs[int(rng.random() * len(theirs))]] * int(rng.random() * 3)
        return b"\n".join(lines)[:LONGEST]
    tree = _yaml(data)
    if tree is _NONE:
        return mutate_bytes(rng, data, other)
    changed = _changed(rng, copy.deepcopy(tree), _yaml(other))
    return yaml.safe_dump(changed, sort_keys=False, allow_unicode=rng.random() < 0.5).encode(errors="replace")[:LONGEST]


def mutate_safetensors(rng: Random, data: bytes, other: bytes) -> bytes:
    """A change of the head, with its length as it has to be, or of bytes."""
    size = int.from_bytes(data[:8], "little")
    if rng.random() < 0.3 or size > len(data):
        return mutate_bytes(rng, data, other)
    head = _json(data[8 : 8 + size])
    if not isinstance(head, dict):
        return mutate_bytes(rng, data, other)
    head, kind = copy.deepcopy(head), rng.random()
    names = [name for name in head if name != "__metadata__" and isinstance(head[name], dict)]
    if kind < 0.4 and names:
        entry = head[names[int(rng.random() * len(names))]]
        entry["dtype"] = _DTYPES[int(rng.random() * len(_DTYPES))]
        if rng.random() < 0.5:
            entry["shape"] = _SHAPES[int(rng.random() * len(_SHAPES))]
    elif kind < 0.6 and isinstance(head.get("__metadata__"), dict) and head["__metadata__"]:
        about = head["__metadata__"]
        key = list(about)[int(rng.random() * len(about))]
        about[key] = mutate_json(rng, str(about[key]).encode(errors="replace"), b"{}").decode(errors="replace")
    else:
        head = _changed(rng, head, _NONE)
    text = json.dumps(head).encode(errors="replace")
    return (len(text).to_bytes(8, "little") + text + data[8 + size :])[:LONGEST]


_DTYPES = (
    "F32",
    "F64",
    "F16",
    "BF16",
    "I64",
    "I32",
    "U8",
    "BOOL",
    "U64",
    "U32",
    "U16",
    "F8_E4M3",
    "F8_E5M2",
    "I8",
    "C64",
    "X",
    1,
)
_SHAPES: tuple[list[Any], ...] = (
    [],
    [0],
    [1],
    [2],
    [4],
    [8],
    [3, 0],
    [2, 2],
    [2**63],
    [2**32, 2**32],
    [-1],
    [1.5],
    [None],
    [1, 1, 4],
)

_NONE = object()


@lru_cache(256)
def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _NONE


@lru_cache(256)
def _yaml(data: bytes) -> Any:
    try:
        return parse_yaml(data.decode())
    except (yaml.YAMLError, UnicodeDecodeError):
        return _NONE


def _with_text(rng: Random, data: bytes, texts: tuple[bytes, ...]) -> bytes:
    at, text = int(rng.random() * (len(data) + 1)), texts[int(rng.random() * len(texts))]
    if rng.random() < 0.1:
        return text[:LONGEST]
    return (data[:at] + text + data[at + (0 if rng.random() < 0.5 else int(rng.random() * 8)) :])[:LONGEST]


def _changed(rng: Random, tree: Any, other: Any) -> Any:
    """The tree with one to three changes; it is overwritten."""
    for _ in range(1 + int(rng.random() ** 3 * 3)):
        places = _places(tree)
        if not places:
            return _value(rng, tree)
        below, key = places[int(rng.random() * len(places))]
        kind = rng.random()
        if kind < 0.15:
            del below[key]
        elif kind < 0.25 and isinstance(below, dict):
            below[str(_value(rng, key))] = below.pop(key) if rng.random() < 0.5 else below[key]
        elif kind < 0.3 and isinstance(below, list):
            below.extend([below[key]] * (1 if rng.random() < 0.8 else 300))
        elif kind < 0.4 and other is not _NONE and (theirs := _places(other)):
            there, word = theirs[int(rng.random() * len(theirs))]
            below[key] = copy.deepcopy(there[word])
        elif kind < 0.45:
            for _ in range(1 + int(rng.random() ** 3 * 80)):
                below[key] = [below[key]] if rng.random() < 0.5 else {"a": below[key]}
        else:
            below[key] = _value(rng, below[key])
    return tree


def _value(rng: Random, old: Any) -> Any:
    if type(old) is int and rng.random() < 0.3:
        return old + int(rng.random() * 5) - 2
    if isinstance(old, str) and rng.random() < 0.3:
        return mutate_bytes(rng, old.encode(errors="replace"), b"abc: {}").decode(errors="replace")
    return copy.deepcopy(_VALUES[int(rng.random() * len(_VALUES))])


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container and key or index."""
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left and len(found) < 2000:
        below = left.pop()
        if isinstance(below, dict):
            found += [(below, key) for key in below]
            left += below.values()
        elif isinstance(below, list):
            found += [(below, place) for place in range(len(below))]
            left += below
    return found
