"""Files of text are read and written in UTF-8, whatever the locale is: every call in the product says so."""

from __future__ import annotations

import ast
import re

from tests.test_house import sources

_TEXT = re.compile(r"[rwax]\+?t?")
_OTHERS = {"newline", "buffering", "errors"}


def in_the_locales_encoding(call: ast.Call) -> bool:
    """True if the call opens, reads or writes text, as far as can be seen, and does not name an encoding."""
    keys = {key.arg: key.value for key in call.keywords}
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if "encoding" in keys:
        return False
    if name in ("read_text", "write_text"):
        return isinstance(call.func, ast.Attribute)
    if name not in ("open", "fdopen"):
        return False
    modes = [
        node.value
        for part in (*call.args, keys.get("mode"))
        if part
        for node in ast.walk(part)
        if isinstance(node, ast.Constant)
    ]
    if any(isinstance(mode, str) and _TEXT.fullmatch(mode) for mode in modes):
        return True
    return not call.args and bool(keys) and set(keys) <= _OTHERS


def test_every_file_of_text_names_its_encoding() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and in_the_locales_encoding(node)
    ]
    assert not found


def test_the_search_finds_what_it_should() -> None:
    wrong = [
        "p.open('w')",
        "open(p, 'a')",
        "p.read_text()",
        "p.write_text(t)",
        "p.open(newline='')",
        "p.open('r+' if a else 'w')",
        "p.open(mode='w')",
    ]
    right = [
        "p.open('rb')",
        "p.open('w', encoding='utf-8')",
        "tarfile.open(p, 'r:gz')",
        "os.open(p, os.O_RDONLY)",
        "write_text(p, t)",
    ]
    assert all(in_the_locales_encoding(ast.parse(text, mode="eval").body) for text in wrong)  # type: ignore[arg-type]
    assert not any(in_the_locales_encoding(ast.parse(text, mode="eval").body) for text in right)  # type: ignore[arg-type]
